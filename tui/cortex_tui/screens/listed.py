"""Screens of one list, and below it a page about the row under the cursor."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from textual import on
from textual.widget import Widget

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.window import Window
from cortex_tui.render.table import Column
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.virtual_table import VirtualTable

Row = TypeVar("Row")
Detail = TypeVar("Detail")


class ListScreen(Frame, Generic[Row]):
    """The list is read whole; the page shows what its rows have."""

    COLUMNS: ClassVar[Sequence[Column[Any]]]
    NOTHING: ClassVar[str]
    """The message for an empty list."""
    NONE_CHOSEN: ClassVar[str]

    def __init__(self, context: AppContext, *, key: Callable[[Row], Hashable]) -> None:
        super().__init__(context)
        self._key = key
        self._window: Window[Row, None] = Window(key=key)
        self._table = VirtualTable(
            context, self._window, self.COLUMNS, key=key, empty=self._nothing
        )
        self._page = Page(context, head=self._head)
        self._in_page: Hashable = None
        """The key of the row on the page."""
        self._is_read = False

    # --- what a screen defines

    async def rows(self) -> Sequence[Row]:
        """Read the list. Raises `CortexError`s."""
        raise NotImplementedError

    def cut(self, rows: Sequence[Row]) -> str:
        """Return where to find rows that were not read; "" if there are none."""
        raise NotImplementedError

    def page_head(self, row: Row) -> Cell:
        raise NotImplementedError

    def page_lines(self, row: Row, room: int) -> Iterable[tuple[Cell, ...]]:
        """Make the page in lines of `room` cells."""
        raise NotImplementedError

    # ---

    def body(self) -> Iterable[Widget]:
        return (self._table, self._page)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()
        self._show_current()

    async def look(self) -> bool | None:
        rows = await self.rows()
        is_first, self._is_read = not self._is_read, True
        self._table.show_cut(self.cut(rows))
        return self._window.refill(rows) or is_first

    def action_move(self, how: str) -> None:
        if not self._page.turns(how):
            self._table.move(how)

    def current(self) -> Row | None:
        """Return the row under the cursor, or say that there is none."""
        row = self._window.current
        if row is None:
            self.strip.show(self._window.why_none(self.NONE_CHOSEN), "dim")
        return row

    @on(VirtualTable.Moved)
    @on(Page.Resized)
    def _show_current(self) -> None:
        row = self._window.current
        key = None if row is None else self._key(row)
        lines = () if row is None else tuple(self.page_lines(row, self._page.room))
        self._page.show(lines, is_other=key != self._in_page)
        self._in_page = key

    def _head(self) -> tuple[Cell, Cell]:
        row = self._window.current
        return (Cell("") if row is None else self.page_head(row)), Cell("")

    def _nothing(self) -> str:
        return self.NOTHING if self._is_read else "reading …"


class DetailScreen(ListScreen[Row], Generic[Row, Detail]):
    """More about the row under the cursor is a separate query, which alternates with the list."""

    def __init__(self, context: AppContext, *, key: Callable[[Row], Hashable]) -> None:
        super().__init__(context, key=key)
        self._detail: tuple[Hashable, Detail] | None = None
        """Of which row."""
        self._is_turn_of_detail = False

    async def read_detail(self, row: Row) -> Detail:
        """Read more about a row. Raises `CortexError`s."""
        raise NotImplementedError

    @property
    def detail(self) -> Detail | None:
        """What was read about the row under the cursor; None: nothing yet."""
        row = self._window.current
        is_its = row is not None and self._detail is not None and self._detail[0] == self._key(row)
        return self._detail[1] if is_its and self._detail is not None else None

    async def look(self) -> bool | None:
        row = self._window.current
        is_turn, self._is_turn_of_detail = self._is_turn_of_detail, False
        if row is not None and (is_turn or self.detail is None):
            before, self._detail = self._detail, (self._key(row), await self.read_detail(row))
            return before != self._detail
        self._is_turn_of_detail = True
        return await super().look()

    def _show_current(self) -> None:
        if self._window.current is not None and self.detail is None:
            self.context.wake()
        super()._show_current()
