"""Bulk operations on jobs, in batches run by this command, at a rate or not, always counted.

Each batch is a transaction of its own and changed jobs no longer match, so after Ctrl-C, an outage
or a kill the same command continues with the rest.
"""

import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.cli.pace import Pace
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.output import Output
from cortex.domain.errors import CortexError, OutcomeUnknownError
from cortex.domain.job_filter import Refusal
from cortex.postgres.session import Session
from cortex.store.job_choice import BATCH, BulkDone, PartlyDoneError
from cortex.view.cells import fit

PROGRESS_EVERY_S: Final = 5.0
"""Interval of progress lines where the live line cannot be rewritten."""

Work = Callable[..., Coroutine[Any, Any, BulkDone]]


@attrs.define
class Tally:
    """The progress of a bulk operation."""

    left: int
    """Not started."""
    unsure: int = 0
    """Sent, but with unknown outcome: the reply was lost."""
    changed: int = 0
    asked: int = 0
    resubmitted: int = 0
    refused: Counter[Refusal] = attrs.field(factory=Counter)

    def begin(self, count: int) -> None:
        """Count a batch as sent."""
        self.left -= count
        self.unsure = count

    def undo(self) -> None:
        """Count the rest of the batch as not started."""
        self.left += self.unsure
        self.unsure = 0

    def add(self, done: BulkDone) -> None:
        """Count the result of a batch."""
        self.unsure -= done.changed + sum(done.refused.values())
        self.changed += done.changed
        self.asked += done.asked
        self.resubmitted += done.resubmitted
        self.refused.update(done.refused)


def work_at(
    rate_per_s: float | None,
    call: Session,
    output: Output,
    job_ids: Sequence[UUID],
    work: Work,
    *,
    tally: Tally,
    **fields: str,
) -> None:
    """Run the operation; `tally` holds its progress, even when `work` raises, or on Ctrl-C.

    Without a rate: as fast as possible.
    """
    pace = None if rate_per_s is None else Pace(rate_per_s)
    size = BATCH if pace is None else min(BATCH, pace.batch)
    talk, is_for_people = output.talk, output.is_for_people
    shown_at = time.monotonic()
    with live_line(talk, is_on=is_for_people) as live:
        for start in range(0, len(job_ids), size):
            batch = job_ids[start : start + size]
            if pace is not None:
                pace.wait(call.pause, len(batch))
            tally.begin(len(batch))
            try:
                tally.add(call(work, batch, **fields))
            except CortexError as error:
                cause = error
                if isinstance(error, PartlyDoneError):
                    tally.add(error.done)
                    cause = error.cause
                if not isinstance(cause, OutcomeUnknownError):
                    tally.undo()
                raise
            line = f"{len(job_ids) - tally.left:,} of {len(job_ids):,} · Ctrl-C stops"
            live.show(fit(line, talk.width - 1))
            if (
                is_for_people
                and not talk.moves_cursor
                and time.monotonic() >= shown_at + PROGRESS_EVERY_S
            ):
                shown_at = time.monotonic()
                output.say(line, "dim")
