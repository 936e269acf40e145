"""An idle screen: what has not changed is not written again, on any of them."""

import pyte
import pytest
from textual.app import App
from textual.screen import Screen

from cortex_tui.app import CortexApp
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.support.terminal.tui_scenes import SCENES, Scene, typical
from tests.tui.conftest import OpenSession

SIZE = (120, 40)
IDLE_S = 6.0
"""Longer than any part of a screen waits before it is read again."""


class Written:
    """A terminal that gets what the app writes, though the app has none."""

    def __init__(self) -> None:
        self.terminal = pyte.Screen(*SIZE)
        self._stream = pyte.Stream(self.terminal)
        self.needless: list[str] = []
        """Rows that were written and looked the same before."""

    def take(self, text: str) -> None:
        before = [dict(self.terminal.buffer[y]) for y in range(SIZE[1])]
        self.terminal.dirty.clear()
        self._stream.feed(text)
        for y in sorted(self.terminal.dirty):
            if dict(self.terminal.buffer[y]) == before[y]:
                self.needless.append(f"{y}: {self.terminal.display[y].strip()}")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, drawn_always: None) -> Written:
    """Output of the app from its start on."""
    found = Written()

    def display(app: App[int], _: Screen[object], update: object) -> None:
        if (render := getattr(update, "render_segments", None)) is not None:
            found.take(render(app.console))

    monkeypatch.setattr(CortexApp, "_display", display)
    return found


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@on_asyncio
async def test_no_row_is_written_again_that_has_not_changed(
    cluster: FakeBackend, sit: OpenSession, written: Written, scene: Scene
) -> None:
    typical(cluster)
    async with sit(first=scene.first, size=SIZE) as seat:
        await scene.enter(seat)
        written.needless.clear()
        await seat.pass_time(IDLE_S)
        assert written.needless[:3] == []
        assert [line.rstrip() for line in written.terminal.display] == seat.lines
