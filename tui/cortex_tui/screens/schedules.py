"""The schedules: when each fires, what became of its instants, and changes by people."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from cortex.domain.safe import safe
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import Cell
from cortex.view.resources.schedules import SCHEDULES
from cortex.view.verbs import PAUSE_SCHEDULE, RESUME_SCHEDULE, TRIGGER_SCHEDULE, Verb
from cortex_tui.app_context import AppContext
from cortex_tui.backend.schedules import SHOWN_MAX
from cortex_tui.model.selected import Selected
from cortex_tui.render.schedule_rows import SCHEDULE_COLUMNS, page_head, page_lines
from cortex_tui.screens.listed import DetailScreen
from cortex_tui.screens.reasoned import Work, propose_change

MORE: Final = "more of them: cortex schedules ls --limit 1000"


class SchedulesScreen(DetailScreen[ScheduleRow, Sequence[InstantRow]]):
    NAME = "schedules"
    COLUMNS = SCHEDULE_COLUMNS
    NOTHING = "no schedule exists: cortex schedules apply FILE"
    NONE_CHOSEN = "no schedule under the cursor"
    DEFAULT_CSS = """
    SchedulesScreen Page { height: 12; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context, key=lambda row: row.name)

    async def rows(self) -> Sequence[ScheduleRow]:
        return await self.context.backend.schedules.page()

    def cut(self, rows: Sequence[ScheduleRow]) -> str:
        return MORE if len(rows) >= SHOWN_MAX else ""

    async def read_detail(self, row: ScheduleRow) -> Sequence[InstantRow]:
        return await self.context.backend.schedules.instants(row.name)

    def page_head(self, row: ScheduleRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: ScheduleRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.detail, self.context.session.now, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        command = f"cortex schedules show {row.name}"
        return Selected(id=row.name, command=command, shape=SCHEDULES, row=row)

    # --- keys

    def action_open(self) -> None:
        """Open the job of the last instant."""
        row = self.current()
        if row is not None and row.last_job_id is None:
            self.strip.show("its last instant has no job", "dim")
        elif row is not None and row.last_job_id is not None:
            self.context.open("job", row.last_job_id)

    def action_pause(self) -> None:
        """Ask whether to pause a schedule, or to resume a paused one."""
        row = self.current()
        if row is None:
            return
        name, schedules = row.name, self.context.backend.schedules
        if row.paused_at is None:
            asked = f"pause {name}: what falls into the pause never fires"
            self._propose(PAUSE_SCHEDULE, asked, name, schedules.pause)
        else:
            asked = f"resume {name}: it counts from now"
            self._propose(RESUME_SCHEDULE, asked, name, schedules.resume)

    def action_trigger(self) -> None:
        """Ask whether to submit a job of a schedule now."""
        row = self.current()
        if row is not None:
            asked = f"trigger {row.name}: submits a job now, beside its instants"
            work = self.context.backend.schedules.trigger
            self._propose(TRIGGER_SCHEDULE, asked, row.name, work)

    def _propose(self, verb: Verb, asked: str, name: str, work: Work) -> None:
        text = f"{verb.command.split()[-1]} {safe(name)}"
        work = partial(work, name)
        propose_change(self.context, self.strip, verb, text, name=name, work=work, asked=asked)
