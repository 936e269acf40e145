"""Limits of job types: what they permit, what is used, and how many jobs wait."""

from collections.abc import Iterable, Sequence

from cortex.store.limits import LimitRow
from cortex.view.cells import Cell
from cortex.view.resources.limits import LIMITS
from cortex_tui.app_context import AppContext
from cortex_tui.backend.queues import LIMITS_MAX
from cortex_tui.model.selected import Selected
from cortex_tui.render.limit_rows import LIMIT_COLUMNS, page_head, page_lines
from cortex_tui.screens.listed import ListScreen


class LimitsScreen(ListScreen[LimitRow]):
    NAME = "limits"
    COLUMNS = LIMIT_COLUMNS
    NOTHING = 'no job type has limits: @job(limits=[Concurrency(5, key="tenant")])'
    NONE_CHOSEN = "no limit under the cursor"
    DEFAULT_CSS = """
    LimitsScreen Page { height: 9; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context, key=lambda row: row.name)

    async def rows(self) -> Sequence[LimitRow]:
        return await self.context.backend.queues.limits()

    def cut(self, rows: Sequence[LimitRow]) -> str:
        return "more of them: cortex limits ls" if len(rows) >= LIMITS_MAX else ""

    def page_head(self, row: LimitRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: LimitRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.context.session.now, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        return Selected(id=row.name, command="cortex limits ls", shape=LIMITS, row=row)
