"""`--rate N`: at most N operations per second."""

import time
from collections.abc import Callable
from typing import Any, Final

import click

from cortex.domain.bulk_operation import RATE_MAX, RATE_MIN

BATCH_S: Final = 0.5
"""Duration of one batch at the given rate."""
LATE_MAX_S: Final = 1.0
"""At most this much delay is made up for."""


class Rate(click.ParamType[float]):
    """A finite number per second."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        rate = click.FLOAT.convert(value, param, ctx)
        if not RATE_MIN <= rate <= RATE_MAX:  # also true for NaN
            self.fail(f"{value} is not from {RATE_MIN:g} to {RATE_MAX:,.0f} per second", param, ctx)
        return rate


class Pace:
    """Releases batches at a rate; the first one at once."""

    def __init__(self, rate_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._due_at = clock()

    @property
    def batch(self) -> int:
        """Return the number of operations per batch."""
        return max(1, int(self._rate_per_s * BATCH_S))

    def wait(self, pause: Callable[[float], None], count: int) -> None:
        """Wait with `pause` until `count` more may start; return the instant."""
        now = self._clock()
        if self._due_at > now:
            pause(self._due_at - now)
        self._due_at = max(self._due_at, now - LATE_MAX_S) + count / self._rate_per_s
