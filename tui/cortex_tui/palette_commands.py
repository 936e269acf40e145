"""`:`, the palette: every action of the front screen, by name."""

from collections.abc import Callable, Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from cortex_tui.key import Key
from cortex_tui.key_table import shown
from cortex_tui.screens.frame import Frame


class KeyCommands(Provider):
    """Finds the actions of the front screen's keys by name."""

    async def discover(self) -> Hits:  # noqa: ASYNC900 -- Textual's
        for key, run in self._commands():
            yield DiscoveryHit(_name(key), run, help=key.help)

    async def search(self, query: str) -> Hits:  # noqa: ASYNC900 -- Textual's
        matcher = self.matcher(query)
        for key, run in self._commands():
            score = matcher.match(_name(key))
            if score > 0:
                yield Hit(score, matcher.highlight(_name(key)), run, help=key.help)

    def _commands(self) -> Iterator[tuple[Key, Callable[[], object]]]:
        frame = self.screen
        if isinstance(frame, Frame):
            for key in frame.context.keys.of(frame.NAME):
                if key.id != "command":
                    yield key, partial(frame.choose, key.action)


def _name(key: Key) -> str:
    return f"{key.label}  ({shown(key.keys[0])})"
