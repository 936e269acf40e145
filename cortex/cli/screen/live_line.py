"""The current activity of a job, in the last line of the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from cortex.cli.screen.terminal import Terminal


class LiveLine:
    """The last line of the terminal, rewritten in place; does nothing where that is impossible."""

    def __init__(self, terminal: Terminal, *, is_on: bool) -> None:
        self._terminal = terminal
        self.is_on = is_on and terminal.moves_cursor
        self._is_shown = False

    def show(self, line: str) -> None:
        """Replace the line."""
        if self.is_on:
            self._is_shown = True  # first: Ctrl-C may interrupt the write
            self._terminal.write(f"\r{line}\x1b[K", end="")
            self._terminal.flush()

    def clear(self) -> None:
        """Remove the line, so that another one can be printed."""
        if self._is_shown:
            self._terminal.write("\r\x1b[K", end="")
            self._terminal.flush()
            self._is_shown = False


@contextmanager
def live_line(terminal: Terminal, *, is_on: bool) -> Iterator[LiveLine]:
    """Yield a live line; leave a clean terminal however the block ends."""
    live = LiveLine(terminal, is_on=is_on)
    try:
        yield live
    finally:
        live.clear()
