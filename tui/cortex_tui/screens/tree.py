"""The tree of a job: those that it has submitted, down to the leaves; `cortex jobs tree`."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from cortex.domain.phrases import short_id
from cortex.store.children import SHOWN_MAX, TREE_MAX
from cortex.view.cells import Cell
from cortex.view.tree import lines_of
from cortex_tui.app_context import AppContext
from cortex_tui.model.selected import Selected
from cortex_tui.render.tree_rows import TREE_COLUMNS, TreeRow, page_head, page_lines, rows_of
from cortex_tui.screens import job_actions
from cortex_tui.screens.listed import ListScreen

EVERY_S: Final = 2.0
"""A tree takes two statements per level."""
TIMES: Final = 10
"""How many times as many children of each job a fold opens to."""


class TreeScreen(ListScreen[TreeRow]):
    """Large fan-outs are folded: the line that counts the others opens more of them."""

    NAME = "tree"
    COLUMNS = TREE_COLUMNS
    NOTHING = "no job"
    NONE_CHOSEN = "no job under the cursor"
    DEFAULT_CSS = """
    TreeScreen Page { height: 7; }
    """

    def __init__(self, context: AppContext, job_id: UUID) -> None:
        super().__init__(context, key=lambda row: row.key)
        self._job_id = job_id
        self._shown_max = SHOWN_MAX
        self._read_at = float("-inf")

    def path(self) -> tuple[str, ...]:
        return ("jobs", short_id(self._job_id), "tree")

    async def rows(self) -> Sequence[TreeRow]:
        tree = await self.context.backend.job.tree(self._job_id, shown_max=self._shown_max)
        return rows_of(lines_of(tree))

    def cut(self, rows: Sequence[TreeRow]) -> str:  # noqa: ARG002 -- its lines count the others
        return ""

    async def look(self) -> bool | None:
        now = self.context.session.clock.now()
        if now < self._read_at + EVERY_S:
            return None
        self._read_at = now
        return await super().look()

    def page_head(self, row: TreeRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: TreeRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.context.session.now, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None or row.job is None or row.job.status is None:
            return None
        return job_actions.selected_step(self.context, row.job.id, None)

    def action_open(self) -> None:
        """Open the job under the cursor, or more of those that a line counts."""
        row = self.current()
        if row is None:
            return
        if row.job is None:
            self._unfold()
        elif row.job.status is None:
            self.strip.show("this job is not submitted yet, or never will be", "dim")
        else:
            self.context.open("job", row.job.id)

    def _unfold(self) -> None:
        if self._shown_max >= TREE_MAX:
            self.strip.show(f"a tree shows {TREE_MAX:,} jobs: open a child to see its own", "dim")
            return
        self._shown_max = min(TREE_MAX, self._shown_max * TIMES)
        self._read_at = float("-inf")
        self.context.wake()
