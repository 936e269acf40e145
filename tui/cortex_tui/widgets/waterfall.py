"""The waterfall of a job: a table whose widest column is time."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Self

import attrs
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.waterfall import WaterfallRow
from cortex_tui.model.window import Window
from cortex_tui.render.table import GUTTER
from cortex_tui.render.waterfall import (
    Axis,
    Room,
    Zoom,
    axis_of,
    head_cells,
    room_of,
    row_cells,
)
from cortex_tui.widgets.virtual_table import VirtualTable

ROOM_ROWS: Final = 200
"""The number of rows around the visible ones that set the widths of the columns."""


class Waterfall(VirtualTable[WaterfallRow]):
    """Draws the rows of a window on one axis; `zoom` selects the part of the time."""

    def __init__(
        self, context: AppContext, window: Window[WaterfallRow, None], *, empty: Callable[[], str]
    ) -> None:
        """`empty` returns why there are no rows."""
        super().__init__(context, window, (), key=lambda row: row.key, empty=empty)
        self.zoom = Zoom()
        self.zero: datetime | None = None
        """The start of the time axis; None: the first row."""
        self._laid: tuple[int, Room, Axis] | None = None
        """The layout for a width, until the next refresh."""

    def follow(self, *, follows: bool) -> None:
        """Let the axis end now, or stay around the cursor."""
        self.zoom = attrs.evolve(self.zoom, follows=follows)
        self.refresh()

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """Lay the columns and the axis out again."""
        self._laid = None
        return super().refresh(*regions, **options)

    def redraw(self) -> None:
        self._laid = None
        super().redraw()

    def _layout(self, width: int) -> tuple[int, Room, Axis]:
        window, now = self._window, self.context.session.now
        around = window.rows[max(0, window.top - ROOM_ROWS) : window.top + ROOM_ROWS]
        axis = axis_of(window.rows, self.zoom, now=now, on=window.current, zero=self.zero)
        return width, room_of(around, width), axis

    def draw(self, y: int, width: int) -> Strip:
        window, now = self._window, self.context.session.now
        if not window.rows:
            return self._text_line(self._empty(), width) if y == 1 else Strip.blank(width)
        if self._laid is None or self._laid[0] != width:
            self._laid = self._layout(width)
        _, room, axis = self._laid
        if y == 0:
            return self._line(head_cells(room, axis), width, is_cursor=False)
        index = window.top + y - 1
        if index >= len(window.rows):
            return Strip.blank(width)
        cells = row_cells(window.rows[index], room, axis, now)
        return self._line(cells, width, is_cursor=index == window.cursor)

    def _line(self, cells: Iterable[Cell], width: int, *, is_cursor: bool) -> Strip:
        palette, session = self.context.palette, self.context.session
        is_dim = session.link.is_stale(session.clock.now())
        bar = Segment("▌" if is_cursor else " ", palette["accent"])
        parts = [Segment(cell.text, palette["dim" if is_dim else cell.style]) for cell in cells]
        line = Strip([bar, Segment(" " * (GUTTER - 1)), *parts]).adjust_cell_length(width)
        return palette.lit(line, "cursor") if is_cursor else line
