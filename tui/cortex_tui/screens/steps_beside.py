"""The third column of a wide screen: the newest steps of the job under a list's cursor.

They are read once the cursor rests, and again when the job changes state; see `Side` for the pane.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from cortex.domain.phrases import short_id
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.model.waterfall import WaterfallRow, rows_of
from cortex_tui.render.steps_side import steps_lines
from cortex_tui.widgets.side import About, Side

REST_S: Final = 0.3
"""The time after which a cursor rests."""
AGAIN_S: Final = 1.0
"""The least time between reads of a job that commits step after step."""
STEPS_MAX: Final = 60

StepsOf: TypeAlias = tuple[UUID, Hashable]
"""A job, and its state when the list was read."""


class StepsBeside:
    """Owns the pane. The screen calls `moved`, and `look` when `wants` returns True."""

    def __init__(self, context: AppContext, *, of: Callable[[], StepsOf | None]) -> None:
        """`of` returns the job under the cursor; None if there is none."""
        self._context = context
        self._of = of
        self.pane = Side(context, about=self._about)
        self.pane.add_class("-third")
        self._moved_at = self._read_at = float("-inf")
        self._asked: StepsOf | None = None
        self._job_id: UUID | None = None
        """The job of the rows."""
        self._rows: Sequence[WaterfallRow] = ()

    def moved(self) -> None:
        self._moved_at = self._context.session.clock.now()
        self.pane.follow()

    @property
    def wants(self) -> bool:
        subject, now = self._of(), self._context.session.clock.now()
        if subject is None or subject == self._asked or not self.pane.is_seen_now:
            return False
        return now - self._moved_at >= REST_S and now - self._read_at >= AGAIN_S

    async def look(self) -> bool:
        """Read the steps, in one statement."""
        subject = self._of()
        if subject is None:
            return False
        self._read_at = self._context.session.clock.now()
        self._asked = subject  # also if this fails, so that the list keeps its turn
        view = await self._context.backend.job.look(subject[0], after=None, limit=STEPS_MAX)
        self._context.take_head(view.head)
        self._job_id = subject[0]
        self._rows = rows_of(view.job, view.steps, folded=frozenset())
        return True

    def _about(self, width: int) -> About | None:
        subject = self._of()
        if subject is None:
            return None
        title = Cell(f"steps of {short_id(subject[0])}", "dim")
        if self._job_id != subject[0]:
            return About(key=subject[0], title=title, lines=())
        rows = self._rows[-max(1, self.pane.size.height - 1) :]
        lines = tuple(steps_lines(rows, self._context.session.now, width))
        return About(key=subject[0], title=title, lines=lines)
