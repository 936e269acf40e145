"""One job on its screen: its record, the loaded steps, the rows of the waterfall, the stream.

Pure: `JobLoader` reads it, and the panes draw it.
"""

from collections.abc import Hashable
from enum import StrEnum
from uuid import UUID

import attrs

from cortex.store.job_screen import WatchedJob
from cortex.view.why_brief import EXPLAINED
from cortex_tui.model.step_list import StepList
from cortex_tui.model.stream import Stream
from cortex_tui.model.wait_reasons import WaitReasons
from cortex_tui.model.waterfall import WaterfallRow, rows_of
from cortex_tui.model.window import Window


class View(StrEnum):
    """A view of the row under the cursor."""

    STEP = "step"
    LOG = "log"
    PROMPT = "prompt"
    RESPONSE = "response"
    ATTEMPTS = "attempts"
    RAW = "raw"


class Pane(StrEnum):
    STEPS = "steps"
    DETAIL = "detail"
    STREAM = "stream"


class End(StrEnum):
    """An end of the steps; the value is the movement that leads there."""

    NEWEST = "end"
    OLDEST = "top"


@attrs.define(kw_only=True, eq=False)
class OpenJob:
    """The rows are made of the record and the steps: call `rearrange` when either changes."""

    id: UUID
    row: WatchedJob | None = None
    """None: not read yet."""
    steps: StepList = attrs.field(factory=StepList, init=False)
    wanted: End | None = attrs.field(default=End.NEWEST, init=False)
    """The end of the steps to read."""
    folded: frozenset[int] = frozenset()
    """Numbers of answers whose calls are hidden."""
    window: Window[WaterfallRow, None] = attrs.field(
        factory=lambda: Window(key=lambda row: row.key), init=False
    )
    stream: Stream = attrs.field(factory=Stream, init=False)
    reasons: WaitReasons = attrs.field(factory=WaitReasons, init=False)

    @property
    def is_over(self) -> bool:
        """Whether the job is known to have ended."""
        return self.row is not None and self.row.finished_at is not None

    @property
    def is_whole(self) -> bool:
        """Whether the first step is loaded."""
        return self.steps.first == 1

    def wants_reason(self, now: float) -> bool:
        """Return whether to read what blocks the job: at once after a change of state."""
        if self.row is None or self.row.status not in EXPLAINED:
            return False
        return self.reasons.wants([self.row], now)

    @property
    def detail_version(self) -> tuple[Hashable, ...] | None:
        """The row under the cursor and its state: a detail that was read holds while it is equal.

        Its first value identifies the row.
        """
        row, job = self.window.current, self.row
        if job is None:
            return None
        if row is None:  # the job itself has facts before its first step
            return "", "", None, "", job.status, job.attempt
        return row.key, row.step_key, row.ended, row.note, job.status, job.attempt

    def goes_beyond(self, how: str) -> bool:
        """Return whether a movement leads to steps that are not loaded."""
        if how == End.NEWEST:
            return not self.steps.has_end
        return how == End.OLDEST and not self.is_whole

    def rearrange(self, end: End | None = None, *, follows: bool) -> None:
        """Rebuild the rows; the cursor stays on its row, or goes to an end.

        `follows`: a cursor on the newest row stays on the newest one.
        """
        if self.row is None:
            return
        window = self.window
        is_last = window.cursor in (None, len(window.rows) - 1)
        saying = "" if self.stream.is_over else self.stream.key
        rows = rows_of(self.row, self.steps.steps, folded=self.folded, saying=saying)
        window.rearrange(rows)
        stays_last = follows and is_last and self.steps.has_end
        if end is End.NEWEST or (stays_last and end is None):
            window.move_to(len(rows) - 1)
        elif end is End.OLDEST:
            window.move_to(0)

    def fold(self, *, is_open: bool) -> bool:
        """Fold or unfold the calls of the answer at the cursor; return whether there is one."""
        row = self.window.current
        if row is None or row.number is None:
            return False
        parent = row.number
        if row.depth:
            rows, at = self.window.rows, self.window.cursor or 0
            above = next(each for each in reversed(rows[:at]) if not each.depth and each.number)
            parent = above.number or row.number
            self.window.move_to(rows.index(above))
        elif row.hidden is None:
            return False
        self.folded = self.folded - {parent} if is_open else self.folded | {parent}
        return True
