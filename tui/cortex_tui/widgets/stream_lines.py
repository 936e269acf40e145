"""The live output of a model as plain text; it follows the end until the operator scrolls up."""

from collections.abc import Callable, Iterator
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.strip import Strip

from cortex.domain.budget import LIKELY_BYTES_PER_TOKEN
from cortex.domain.safe import safe
from cortex.view.steps import step_label
from cortex_tui.app_context import AppContext
from cortex_tui.model.stream import Stream
from cortex_tui.render.approval_page import wrapped
from cortex_tui.render.table import fit
from cortex_tui.widgets.drawn import Drawn

WHEEL_LINES: Final = 3
MARGIN: Final = 3


class StreamLines(Drawn):
    """A head of one line, then the last lines of the output."""

    DEFAULT_CSS = """
    StreamLines { height: 6; }
    """

    def __init__(self, context: AppContext, stream: Stream, *, status: Callable[[], str]) -> None:
        """`status` returns the state of the listener; "" if it is healthy."""
        super().__init__(context, id="stream")
        self._stream = stream
        self._status = status
        self._up = 0
        """Lines below what is in sight; 0: it follows."""
        self._shown: list[str] = []
        self.is_front = False
        """Whether it has the movement keys."""

    def changed(self) -> None:
        """Redraw the output."""
        self._shown = []
        self.redraw()

    def scroll_lines(self, by: int) -> None:
        """Scroll; at the end it follows again."""
        most = max(
            0, len(self._wrapped(self.size.height - 1 + self._up - by)) - self.size.height + 1
        )
        self._up = max(0, min(self._up - by, most))
        self.changed()

    def follow(self) -> None:
        """Go to the end and follow it."""
        self._up = 0
        self.changed()

    def on_resize(self) -> None:
        self.changed()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-WHEEL_LINES)

    def draw(self, y: int, width: int) -> Strip:
        palette = self.context.palette
        if y == 0:
            return self._head(width)
        height = self.size.height - 1
        if not self._shown:
            lines = self._wrapped(height + self._up)
            self._shown = (lines[: len(lines) - self._up] or [""])[-height:]
        if y > len(self._shown):
            return Strip.blank(width)
        session = self.context.session
        is_dim = self._stream.is_over or session.link.is_stale(session.clock.now())
        text = " " * MARGIN + self._shown[y - 1]
        return Strip([Segment(text, palette["dim" if is_dim else ""])])

    def _wrapped(self, count: int) -> list[str]:
        """Return at least `count` of the last lines, if there are; older text is not laid out."""
        answer = self._stream.answer
        lines: list[str] = []
        if answer is None:
            return lines
        width = max(2, self.size.width - 2 * MARGIN)
        for line in reversed(answer.lines):
            lines[:0] = wrapped(safe(line), width)
            if len(lines) >= count:
                break
        return lines

    def _head(self, width: int) -> Strip:
        palette = self.context.palette
        title = " · ".join(self._words())
        line = f"─ {fit(title, min(cell_len(title), max(1, width - 4)))} "
        style = palette["accent" if self.is_front else "dim"]
        rule = "─" * max(0, width - cell_len(line) - 1)
        return Strip(
            [
                Segment(" ─", palette["line"]),
                Segment(line[1:], style),
                Segment(rule, palette["line"]),
            ]
        )

    def _words(self) -> Iterator[str]:
        yield safe(f"stream {step_label(self._stream.key)}").rstrip()
        if status := self._status():
            yield safe(status)
        if self._stream.answer is None:
            return
        if self._stream.is_over:
            yield "committed"
            return
        rate = (
            self._stream.chars_a_second(self.context.session.clock.now()) / LIKELY_BYTES_PER_TOKEN
        )
        yield f"{self._up} lines below" if self._up else "following"
        if rate:
            yield f"≈ {rate:.0f} tok/s"
