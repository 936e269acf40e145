"""A table over a window of rows, drawn line by line: its cost does not depend on their number."""

from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs
from textual import events
from textual.message import Message
from textual.strip import Strip

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.window import Window
from cortex_tui.render.table import (
    Column,
    Layout,
    cells_line,
    cells_needed,
    evolved,
    head_line,
    layout,
    moved_on,
    row_line,
)
from cortex_tui.widgets.drawn import Drawn

Row = TypeVar("Row")

WHEEL_ROWS: Final = 3


@attrs.frozen(eq=False)
class _Kept(Generic[Row]):
    """The line of a row, and the cells that it was drawn from."""

    row: Row
    seen: Row
    """The row as of now; the row itself if no column needs it."""
    shown: Layout[Row]
    cells: Sequence[Cell]
    look: tuple[object, ...]
    line: Strip


class VirtualTable(Drawn, Generic[Row], can_focus=True):
    """Titles, then the visible rows of a window. `move` takes the names of the keys in `keys`."""

    DEFAULT_CSS = """
    VirtualTable { height: 1fr; }
    """

    class Moved(Message):
        """The cursor or the visible part moved: more rows may be wanted."""

    def __init__(
        self,
        context: AppContext,
        window: Window[Row, Any],
        columns: Sequence[Column[Row]],
        *,
        key: Callable[[Row], Hashable],
        empty: Callable[[], str],
    ) -> None:
        """`empty` returns why there are no rows."""
        super().__init__(context)
        self._window = window
        self.columns = columns
        self._key = key
        self._empty = empty
        self.marked: Container[Hashable] = ()
        """Keys of rows."""
        self._laid_out: tuple[int, Sequence[Column[Row]], Layout[Row]] | None = None
        """The layout for a width and columns."""
        self._reads_now = False
        """Whether a column of that layout takes rows as of now."""
        self._needed: dict[str, int] = {}
        """Cells by column title: they only grow while the columns stay the same."""
        self._fitting: dict[Hashable, Row] = {}
        """Visible rows that fit into `_needed`."""
        self._kept: dict[int, _Kept[Row]] = {}
        """Lines of rows by position."""
        self._cut = ""
        self.is_in_front = True
        """Whether its cursor is the active one; of several tables one has it."""

    def show_cut(self, text: str) -> None:
        """Show below the last row that there are more, and where; "" if there are none."""
        self._cut, self._window.after = text, int(bool(text))

    @property
    def left_out(self) -> Sequence[str]:
        """Titles of columns that do not fit."""
        shown = () if self._laid_out is None else [column for column, _ in self._laid_out[2]]
        return [column.title for column in self.columns if column not in shown] if shown else ()

    def on_resize(self, event: events.Resize) -> None:
        self._window.resize(event.size.height - 1)
        self._moved()

    def move(self, how: str) -> None:
        """Move the cursor: down, up, top, end, half_down, half_up."""
        window = self._window
        half = max(1, window.height // 2)
        match how:
            case "top":
                window.move_to(0)
            case "end":
                window.move_to(len(window.rows) - 1)
            case _:
                window.move({"down": 1, "up": -1, "half_down": half, "half_up": -half}[how])
        self._moved()

    def move_to(self, index: int) -> None:
        """Put the cursor on a row of the window."""
        self._window.move_to(index)
        self._moved()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._window.scroll(WHEEL_ROWS)
        self._moved()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._window.scroll(-WHEEL_ROWS)
        self._moved()

    def on_click(self, event: events.Click) -> None:
        if event.y > 0 and self._window.top + event.y - 1 < len(self._window.rows):
            self._window.move_to(self._window.top + event.y - 1)
            self._moved()

    def _moved(self) -> None:
        self.redraw()
        self.post_message(self.Moved())

    def _layout_for(self, width: int) -> Layout[Row]:
        if self._laid_out is None or self._laid_out[:2] != (width, self.columns):
            shown = layout(self.columns, width, self._needed)
            self._laid_out = (width, self.columns, shown)
            self._reads_now = any(column.reads_now for column, _ in shown)
        return self._laid_out[2]

    def _widen(self) -> None:
        """Widen the columns for visible rows that were not measured yet."""
        if self._laid_out is not None and self._laid_out[1] != self.columns:
            self._needed, self._fitting = {}, {}
        top, now = self._window.top, self.context.session.now
        rows = {
            self._key(row): row for row in self._window.rows[top : top + self._drawn_size.height]
        }
        for key, row in rows.items():
            if self._fitting.get(key) is row:
                continue
            for title, cells in cells_needed(self.columns, row, now).items():
                if cells > self._needed.get(title, 0):
                    self._needed[title], self._laid_out = cells, None
        self._fitting = rows

    def draw(self, y: int, width: int) -> Strip:
        if y == 0:
            self._widen()
        shown = self._layout_for(width)
        if y == 0:
            return head_line(shown, self.context.palette, width)
        index = self._window.top + y - 1
        if index >= len(self._window.rows):
            if not self._window.rows:
                return self._text_line(self._empty(), width) if y == 1 else Strip.blank(width)
            is_cut = self._cut and index == len(self._window.rows)
            return self._text_line(self._cut, width) if is_cut else Strip.blank(width)
        return self._row_line(y, self._window.rows[index], shown, width)

    def _row_line(self, y: int, row: Row, shown: Layout[Row], width: int) -> Strip:
        """Return the line of a row: the cached one, if its cells are unchanged."""
        palette, session = self.context.palette, self.context.session
        now = session.now
        is_cursor = self.is_in_front and self._window.top + y - 1 == self._window.cursor
        is_marked = self._key(row) in self.marked
        is_dim = session.link.is_stale(session.clock.now())
        kept = self._kept.get(y)
        if kept is not None and kept.row is row and kept.shown is shown:
            seen = moved_on(kept.seen, row, now)
            cells = [
                cell if column.is_fixed else column.cell(seen, now)
                for cell, (column, _) in zip(kept.cells, shown, strict=True)
            ]
        else:
            seen = evolved(row, now) if self._reads_now else row
            kept, cells = None, [column.cell(seen, now) for column, _ in shown]
        look = (width, palette, is_cursor, is_marked, is_dim)
        if kept is not None and kept.cells == cells and kept.look == look:
            return kept.line
        line = cells_line(
            shown,
            cells,
            palette=palette,
            width=width,
            is_cursor=is_cursor,
            is_marked=is_marked,
            is_dim=is_dim,
        )
        self._kept[y] = _Kept(row, seen, shown, cells, look, line)
        return line

    def _text_line(self, text: str, width: int) -> Strip:
        column = Column[str](title="", width=1, grows=True, cell=lambda text, _: Cell(text, "dim"))
        return row_line(
            layout([column], width),
            text,
            now=self.context.session.now,
            palette=self.context.palette,
            width=width,
        )
