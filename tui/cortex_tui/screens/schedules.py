"""The schedules: when each fires, what became of its instants, and changes by people.

The instants of the one under the cursor are a separate query that alternates with the list.
"""

from collections.abc import Iterable, Sequence

from textual import on
from textual.widget import Widget

from cortex.domain.safe import safe
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import Cell
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.schedules import SHOWN_MAX
from cortex_tui.model.resource import Resource
from cortex_tui.model.window import Window
from cortex_tui.render.schedule_rows import SCHEDULE_COLUMNS, page_head, page_lines
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.reasoned import because, propose
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.virtual_table import VirtualTable

NOTHING_HERE = "no schedule under the cursor"


class SchedulesScreen(Frame):
    """The list of schedules."""

    NAME = "schedules"
    DEFAULT_CSS = """
    SchedulesScreen Page { height: 12; }
    """

    def __init__(self, desk: AppContext) -> None:
        super().__init__(desk)
        self._window: Window[ScheduleRow, None] = Window(key=lambda row: row.name)
        self._table = VirtualTable(
            desk, self._window, SCHEDULE_COLUMNS, key=lambda row: row.name, empty=self._nothing
        )
        self._page = Page(desk, head=self._head)
        self._in_page = ""
        """Name of the schedule on the page."""
        self._is_read = False
        self._instants: tuple[str, Sequence[InstantRow]] | None = None
        """Of which schedule, the newest first."""
        self._is_turn_of_instants = False

    def body(self) -> Iterable[Widget]:
        return (self._table, self._page)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()
        self._show_current()

    async def look(self) -> bool:
        row = self._window.current
        is_turn, self._is_turn_of_instants = self._is_turn_of_instants, False
        if row is not None and (is_turn or self._shown_instants is None):
            before = self._instants
            self._instants = (row.name, await self.desk.backend.schedules.instants(row.name))
            return before != self._instants
        rows = await self.desk.backend.schedules.page()
        is_first, self._is_read, self._is_turn_of_instants = not self._is_read, True, True
        more = "more of them: cortex schedules ls --limit 1000"
        self._table.show_cut(more if len(rows) >= SHOWN_MAX else "")
        return self._window.refill(rows) or is_first

    def thing(self) -> Resource | None:
        row = self._window.current
        if row is None:
            return None

        async def document() -> object:
            return row

        return Resource(id=row.name, command=f"cortex schedules show {row.name}", document=document)

    # --- keys

    def action_move(self, how: str) -> None:
        if not self._page.turns(how):
            self._table.move(how)

    def action_open(self) -> None:
        """Open the job of the last instant."""
        row = self._current()
        if row is not None and row.last_job_id is None:
            self.strip.show("its last instant has no job", "dim")
        elif row is not None and row.last_job_id is not None:
            self.desk.open("job", row.last_job_id)

    def action_pause(self) -> None:
        """Ask whether to pause a schedule, or to resume a paused one."""
        row = self._current()
        if row is None:
            return
        name = row.name
        if row.paused_at is None:
            text = f"pause {name}: what falls into the pause never fires"
            verb, is_required = "pause", True
        else:
            text, verb, is_required = f"resume {name}: it counts from now", "resume", False
        propose(
            self.desk,
            self.strip,
            text,
            lambda reason: self._change(verb, name, reason),
            is_required=is_required,
        )

    def action_trigger(self) -> None:
        """Ask whether to submit a job of a schedule now."""
        row = self._current()
        if row is None:
            return
        name = row.name
        propose(
            self.desk,
            self.strip,
            f"trigger {name}: submits a job now, beside its instants",
            lambda reason: self._change("trigger", name, reason),
            is_required=True,
        )

    def _change(self, verb: str, name: str, reason: str) -> Action:
        by, backend = self.desk.session.actor, self.desk.backend.schedules

        async def done() -> str:
            match verb:
                case "pause":
                    return f"{name}: {await backend.pause(name, by=by, reason=reason)}"
                case "resume":
                    return f"{name}: {await backend.resume(name, by=by, reason=reason)}"
                case _:
                    job_id = await backend.trigger(name, by=by, reason=reason)
                    return f"{name}: submitted {job_id}"

        return Action(
            question=f"{verb} {safe(name)}",
            command=("schedules", verb),
            name=name,
            options=because(reason),
            work=done,
        )

    def _current(self) -> ScheduleRow | None:
        row = self._window.current
        if row is None:
            self.strip.show(self._window.why_none(NOTHING_HERE), "dim")
        return row

    # --- the page

    @property
    def _shown_instants(self) -> Sequence[InstantRow] | None:
        """The instants of the schedule under the cursor, if they have been read."""
        row = self._window.current
        if row is None or self._instants is None or self._instants[0] != row.name:
            return None
        return self._instants[1]

    @on(VirtualTable.Moved)
    @on(Page.Resized)
    def _show_current(self) -> None:
        row = self._window.current
        name = "" if row is None else row.name
        instants = self._shown_instants
        if row is not None and instants is None:
            self.desk.wake()
        now = self.desk.session.now
        lines = () if row is None else tuple(page_lines(row, instants, now, self._page.room))
        self._page.show(lines, is_other=name != self._in_page)
        self._in_page = name

    def _head(self) -> tuple[Cell, Cell]:
        row = self._window.current
        return (Cell("") if row is None else page_head(row)), Cell("")

    # --- words

    def _nothing(self) -> str:
        return "no schedule exists: cortex schedules apply FILE" if self._is_read else "reading …"
