"""Scrolling lines below a fixed head; the last line counts the lines not seen yet."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.palette import Palette
from cortex_tui.render.table import LINES_KEPT, fit
from cortex_tui.widgets.drawn import Drawn

WHEEL_LINES: Final = 3
MARGIN: Final = 1
"""Cells at the left and at the right."""

Lines = Sequence[tuple[Cell, ...]]


class Page(Drawn):
    """A head of one line, then the output of `lines` for a width."""

    DEFAULT_CSS = """
    Page { height: 1fr; }
    """

    class Resized(Message):
        """The width changed: make the lines again for `room` cells."""

    def __init__(self, context: AppContext, *, head: Callable[[], tuple[Cell, Cell]]) -> None:
        """`head`: its left and right parts."""
        super().__init__(context)
        self._head = head
        self._lines: Lines = ()
        self._top = 0
        self._cursor: int | None = None
        self._seen = 0
        """The number of lines that have been in sight."""

    @property
    def room(self) -> int:
        """The width of a line in cells."""
        return max(1, self.size.width - 2 * MARGIN)

    @property
    def is_seen(self) -> bool:
        """Whether each line has been in sight."""
        return self._seen >= len(self._lines)

    @property
    def below_count(self) -> int:
        """The number of lines below those in sight."""
        return max(0, len(self._lines) - self._top - self._height)

    def show(self, lines: Lines, *, is_other: bool, cursor: int | None = None) -> None:
        """Show lines; others start at their beginning, the same ones keep their place.

        `cursor`: the line that keys act on; it scrolls into sight when it moves.
        """
        if is_other:
            self._top = self._seen = 0
        elif len(lines) != len(self._lines):
            self._seen = 0
        self._lines = lines
        by = 0
        if cursor is not None and cursor != self._cursor:
            below = max(0, cursor + 1 - self._top - self._height)
            by = below or min(0, cursor - self._top)
        self._cursor = cursor
        self._scroll(by)

    def scroll_page(self, key: str) -> None:
        """Scroll by the name of a key; other keys do nothing."""
        page = max(1, self._height - 1)
        half = max(1, self._height // 2)
        by = {
            "pagedown": page,
            "pageup": -page,
            "space": page,
            "ctrl+d": half,
            "ctrl+u": -half,
            "down": 1,
            "up": -1,
        }.get(key)
        if by is not None:
            self._scroll(by)

    def turns(self, how: str) -> bool:
        """Take the keys for half a page below a list, unless all lines are in sight."""
        half = {"half_down": "ctrl+d", "half_up": "ctrl+u"}.get(how)
        if half is None or len(self._lines) <= self._height:
            return False
        self.scroll_page(half)
        return True

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-WHEEL_LINES)

    def on_resize(self) -> None:
        self._scroll(0)
        self.post_message(self.Resized())

    @property
    def _height(self) -> int:
        """The number of lines in sight."""
        return self._height_in(self.size.height)

    def _height_in(self, height: int) -> int:
        """Return the lines in sight for a height; the last line of the widget counts the others."""
        full = max(1, height - 1)
        return full if len(self._lines) <= full else max(1, full - 1)

    def _scroll(self, by: int) -> None:
        most = max(0, len(self._lines) - self._height)
        self._top = max(0, min(self._top + by, most))
        if self.size.height:
            self._seen = max(self._seen, self._top + self._height)
        self.redraw()

    def draw(self, y: int, width: int) -> Strip:
        if y == 0:
            return self._drawn_head(width)
        index = self._top + y - 1
        height = self._height_in(self._drawn_size.height)
        if y > height and len(self._lines) > height:
            return self._drawn_rest(width)
        if index >= len(self._lines):
            return Strip.blank(width)
        cells, palette = tuple(self._lines[index]), self.context.palette
        is_cursor = index == self._cursor
        line = _line(cells, palette, width, is_dim=self._is_dim, is_cursor=is_cursor)
        return palette.lit(line, "cursor") if is_cursor else line

    @property
    def _is_dim(self) -> bool:
        return self.context.session.link.is_stale(self.context.session.clock.now())

    def _drawn_head(self, width: int) -> Strip:
        palette = self.context.palette
        left, right = self._head()
        room = max(0, width - cell_len(right.text) - 2 * MARGIN - 1)
        parts = [
            Segment(" " * MARGIN),
            Segment(fit(left.text, room), palette["dim" if self._is_dim else left.style]),
            Segment(" "),
            Segment(right.text, palette["dim" if self._is_dim else right.style]),
        ]
        return Strip(parts).adjust_cell_length(width)

    def _drawn_rest(self, width: int) -> Strip:
        below, above = self.below_count, self._top
        parts = []
        if below:
            parts.append(f"▼ {below} more {'line' if below == 1 else 'lines'}")
        if above:
            parts.append(f"▲ {above}")
        text = fit("   ".join(parts), max(0, width - 2 * MARGIN), right=True)
        return Strip([Segment(f" {text}", self.context.palette["warn" if below else "dim"])])


@lru_cache(LINES_KEPT)
def _line(
    cells: Sequence[Cell], palette: Palette, width: int, *, is_dim: bool, is_cursor: bool
) -> Strip:
    parts = [Segment(cell.text, palette["dim" if is_dim else cell.style]) for cell in cells]
    start = Segment("▌", palette["accent"]) if is_cursor else Segment(" " * MARGIN)
    return Strip([start, *parts]).adjust_cell_length(width)
