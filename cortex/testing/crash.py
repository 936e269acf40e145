"""A pod that dies in a test: at one of the points that its attempts pass."""

from collections.abc import Callable

import attrs

from cortex.domain.control_flow import LeaseLost
from cortex.domain.job import Lease


@attrs.define
class Crash:
    """Kills one attempt at point number `at`, from 0; None: no attempt."""

    at: int | None = None
    passed: list[str] = attrs.field(factory=list)
    """The points so far, in words for people."""
    end: Callable[[], None] = lambda: None
    """Cancels the attempt that runs."""
    lease: Lease | None = None
    """The attempt that was killed."""

    def reach(self, lease: Lease, point: str) -> None:
        """Pass a point. Raises `LeaseLost` if the attempt is killed here, or was before."""
        self.check(lease)
        self.passed.append(point)
        if self.lease is None and self.at == len(self.passed) - 1:
            self.lease = lease
            self.end()
            raise LeaseLost(f"killed {point}")

    def check(self, lease: Lease) -> None:
        """Raise `LeaseLost` for an attempt that was killed."""
        if lease == self.lease:
            raise LeaseLost("killed")

    @property
    def place(self) -> str | None:
        """The point where an attempt was killed."""
        return None if self.lease is None or self.at is None else self.passed[self.at]
