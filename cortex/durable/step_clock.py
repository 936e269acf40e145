"""The limit of a step of several calls: the time for recording does not count."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class StepClock:
    """A cancel scope whose deadline stands still while something is being recorded."""

    def __init__(self, limit_s: float) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + limit_s)
        self._left_s = limit_s
        self._recording_count = 0

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Around a commit; several may be in flight at once."""
        if not self._recording_count:
            self._left_s = self.scope.deadline - trio.current_time()
            self.scope.deadline = float("inf")
        self._recording_count += 1
        try:
            yield
        finally:
            self._recording_count -= 1
            if not self._recording_count:
                self.scope.deadline = trio.current_time() + self._left_s
