"""The loaded steps of a job: one contiguous range, at first the newest.

Step numbers have no gaps, so that a number says where to continue at either end.
"""

from collections.abc import Sequence
from typing import Final

from cortex.store.job_screen import WatchedStep

PAGE_STEPS: Final = 200
STEPS_MAX: Final = 2_000


class StepList:
    """Owns the range. At most `STEPS_MAX` steps: those dropped at one end can be read again."""

    def __init__(self) -> None:
        self.steps: list[WatchedStep] = []
        self.newest = 0
        """Number of the last committed step known."""

    @property
    def first(self) -> int:
        """Number of the first loaded step; 1 if there is none."""
        return self.steps[0].seq if self.steps else 1

    @property
    def last(self) -> int:
        """Number of the last loaded step."""
        return self.steps[-1].seq if self.steps else 0

    @property
    def has_end(self) -> bool:
        """Whether no step is known after the last one."""
        return self.last >= self.newest

    def extend(self, steps: Sequence[WatchedStep], *, newest: int) -> bool:
        """Append the steps after the last one; return whether any is new."""
        fresh = [step for step in steps if step.seq > self.last]
        is_new = bool(fresh) or newest != self.newest
        self.steps += fresh
        self.newest = max(newest, self.last)
        del self.steps[: max(0, len(self.steps) - STEPS_MAX)]
        return is_new

    def precede(self, steps: Sequence[WatchedStep]) -> None:
        """Prepend the steps before the first one; too many drop the far end."""
        first = self.first
        self.steps[:0] = [step for step in steps if step.seq < first]
        del self.steps[STEPS_MAX:]

    def renew(self, steps: Sequence[WatchedStep], *, newest: int) -> None:
        """Replace the range."""
        self.steps = list(steps)
        self.newest = max(newest, self.last)
