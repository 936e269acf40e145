"""An act on many jobs: batch after batch from here, at a rate or not, counted however it ends.

Each batch is a transaction of its own, and what was done to a job leaves it no longer chosen: after
Ctrl-C, an outage or a kill the same command goes on with those that are left.
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

TOLD_EVERY_S: Final = 5.0
"""Where no line can be written again."""

Work = Callable[..., Coroutine[Any, Any, BulkDone]]


@attrs.define
class Tally:
    """How far an act is."""

    left: int
    """Not begun."""
    unsure: int = 0
    """Begun, and nobody knows whether it came about: its reply was lost."""
    changed: int = 0
    asked: int = 0
    resubmitted: int = 0
    refused: Counter[Refusal] = attrs.field(factory=Counter)

    def begin(self, count: int) -> None:
        """A batch goes out."""
        self.left -= count
        self.unsure = count

    def undo(self) -> None:
        """The rest of it did not come about."""
        self.left += self.unsure
        self.unsure = 0

    def add(self, done: BulkDone) -> None:
        """So much of it came about."""
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
    **told: str,
) -> None:
    """Do it; `tally` tells how far it came, also when it raises what `work` does, or Ctrl-C.

    Without a rate: as fast as it goes.
    """
    pace = None if rate_per_s is None else Pace(rate_per_s)
    size = BATCH if pace is None else min(BATCH, pace.batch)
    talk, is_for_people = output.talk, output.is_for_people
    told_at = time.monotonic()
    with live_line(talk, is_on=is_for_people) as live:
        for start in range(0, len(job_ids), size):
            batch = job_ids[start : start + size]
            if pace is not None:
                pace.wait(call.pause, len(batch))
            tally.begin(len(batch))
            try:
                tally.add(call(work, batch, **told))
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
                and time.monotonic() >= told_at + TOLD_EVERY_S
            ):
                told_at = time.monotonic()
                output.say(line, "dim")
