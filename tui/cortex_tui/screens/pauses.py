"""What is paused, by whom and why; a pause ends here."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from cortex.domain.queueing.pauses import PauseKind
from cortex.store.pauses import PAUSES_MAX, PauseRow
from cortex.view.cells import Cell
from cortex.view.resources.pauses import PAUSES
from cortex_tui.app_context import AppContext
from cortex_tui.model.selected import Selected
from cortex_tui.render.pause_rows import PAUSE_COLUMNS, page_head, page_lines
from cortex_tui.screens import job_actions
from cortex_tui.screens.listed import ListScreen


class PausesScreen(ListScreen[PauseRow]):
    NAME = "pauses"
    COLUMNS = PAUSE_COLUMNS
    NOTHING = "nothing is paused"
    NONE_CHOSEN = "no pause under the cursor"
    DEFAULT_CSS = """
    PausesScreen Page { height: 8; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context, key=lambda row: row.target)

    async def rows(self) -> Sequence[PauseRow]:
        return await self.context.backend.queues.pauses()

    def cut(self, rows: Sequence[PauseRow]) -> str:
        return "more of them: cortex pauses" if len(rows) >= PAUSES_MAX else ""

    def page_head(self, row: PauseRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: PauseRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.context.session.now, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        target = str(row.target)
        return Selected(id=target, command="cortex pauses", shape=PAUSES, row=row)

    def action_open(self) -> None:
        """Open the paused job."""
        row = self.current()
        if row is not None and row.kind is PauseKind.JOB:
            self.context.open("job", UUID(row.name))
        elif row is not None:
            self.strip.show("only a paused job opens: this pause holds several", "dim")

    def action_resume(self) -> None:
        """Ask whether to end the pause under the cursor."""
        row = self.current()
        if row is not None:
            job_actions.resume(self.context, self.strip, row.target)
