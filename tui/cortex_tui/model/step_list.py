"""The steps of a job that are at hand: one unbroken piece of all, the newest ones at first.

Their numbers have no gaps, so that a number says where to read on at either end.
"""

from collections.abc import Sequence
from typing import Final

from cortex.store.job_view import WatchedStep

PAGE_STEPS: Final = 200
STEPS_MAX: Final = 2_000


class StepList:
    """Owns the piece. At most `STEPS_MAX`: what leaves at one end can be read again."""

    def __init__(self) -> None:
        self.steps: list[WatchedStep] = []
        self.newest = 0
        """Number of the last committed step that is known of."""

    @property
    def first(self) -> int:
        """Number of the first one at hand; 1 when there is none."""
        return self.steps[0].seq if self.steps else 1

    @property
    def last(self) -> int:
        """Number of the last one at hand."""
        return self.steps[-1].seq if self.steps else 0

    @property
    def has_end(self) -> bool:
        """Nothing is known to come after the last one."""
        return self.last >= self.newest

    def extend(self, steps: Sequence[WatchedStep], *, newest: int) -> bool:
        """Add what comes after the last one; return whether there was anything new."""
        fresh = [step for step in steps if step.seq > self.last]
        is_new = bool(fresh) or newest != self.newest
        self.steps += fresh
        self.newest = max(newest, self.last)
        del self.steps[: max(0, len(self.steps) - STEPS_MAX)]
        return is_new

    def precede(self, steps: Sequence[WatchedStep]) -> None:
        """Add what comes before the first one; the far end leaves when it is too much."""
        first = self.first
        self.steps[:0] = [step for step in steps if step.seq < first]
        del self.steps[STEPS_MAX:]

    def renew(self, steps: Sequence[WatchedStep], *, newest: int) -> None:
        """Take another piece instead."""
        self.steps = list(steps)
        self.newest = max(newest, self.last)
