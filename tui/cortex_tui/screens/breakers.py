"""The circuit breakers: what is called and fails, who waits for it, and holding it open."""

from collections.abc import Awaitable, Callable, Iterable

from textual import on
from textual.widget import Widget

from cortex.domain.cells import Cell
from cortex_tui.acts import Act
from cortex_tui.backend.protocol import BreakerRow
from cortex_tui.desk import Desk
from cortex_tui.model.thing import Thing
from cortex_tui.model.window import Window
from cortex_tui.render.breaker_rows import (
    BREAKER_COLUMNS,
    is_closed,
    order_of,
    page_head,
    page_lines,
)
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.virtual_table import VirtualTable


class BreakersScreen(Frame):
    """`breakers`."""

    NAME = "breakers"
    DEFAULT_CSS = """
    BreakersScreen Page { height: 8; }
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._window: Window[BreakerRow, None] = Window(key=lambda row: row["name"])
        self._table = VirtualTable(
            desk, self._window, BREAKER_COLUMNS, key=lambda row: row["name"], empty=self._nothing
        )
        self._page = Page(desk, head=self._head)
        self._in_page = ""
        """Name of the one that the page is about."""
        self._is_read = False

    def body(self) -> Iterable[Widget]:
        return (self._table, self._page)

    def on_mount(self) -> None:
        self._table.focus()

    def paint(self) -> None:
        self._table.refresh()
        self._tell()

    async def look(self) -> bool:
        rows = sorted(await self.desk.backend.breakers.page(), key=order_of)
        self._is_read = True
        return self._window.refill(rows)

    def thing(self) -> Thing | None:
        row = self._window.current
        if row is None:
            return None

        async def document() -> object:
            return row

        return Thing(id=row["name"], document=document)

    # --- keys

    def action_move(self, how: str) -> None:
        self._table.move(how)

    def action_force(self) -> None:
        """Ask whether to hold a breaker open, or to close it if it is not closed."""
        row, breakers = self._window.current, self.desk.backend.breakers
        if row is None:
            self.strip.tell("there is no breaker here", "dim")
        elif is_closed(row):
            self._propose("open", "until somebody closes it jobs wait", breakers.hold_open, row)
        else:
            self._propose("close", "jobs call it again at once", breakers.close, row)

    def _propose(
        self, verb: str, follows: str, work: Callable[..., Awaitable[str]], row: BreakerRow
    ) -> None:
        name, by = row["name"], self.desk.session.actor

        def act(reason: str) -> Act:
            async def done() -> str:
                return f"{name}: {await work(name, by=by, reason=reason)}"

            return Act(
                question=f"{verb} {name}",
                command=("breakers", verb, name, *because(reason), "--yes"),
                work=done,
            )

        propose(self.desk, self.strip, f"{verb} {name}: {follows}", act, is_required=True)

    # --- the page

    @on(VirtualTable.Moved)
    @on(Page.Resized)
    def _tell(self) -> None:
        row = self._window.current
        name = "" if row is None else row["name"]
        now = self.desk.session.now
        lines = [] if row is None else page_lines(row, now, self._page.room)
        self._page.show(lines, is_other=name != self._in_page)
        self._in_page = name

    def _head(self) -> tuple[Cell, Cell]:
        row = self._window.current
        return (Cell("") if row is None else page_head(row)), Cell("")

    # --- words

    def _nothing(self) -> str:
        return "nothing that jobs call has failed lately" if self._is_read else "reading …"
