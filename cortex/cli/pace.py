"""`--rate`: so many of many in a second, and no more."""

import time
from collections.abc import Callable
from typing import Any, Final

import click

from cortex.domain.bulk_operation import RATE_MAX, RATE_MIN

BATCH_S: Final = 0.5
"""A batch has as many as the rate lets through in this time."""
LATE_MAX_S: Final = 1.0
"""What it was late is made up for, as far as that."""


class Rate(click.ParamType[float]):
    """A finite number in a second."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        rate = click.FLOAT.convert(value, param, ctx)
        if not RATE_MIN <= rate <= RATE_MAX:  # also true for NaN
            self.fail(f"{value} is not from {RATE_MIN:g} to {RATE_MAX:,.0f} a second", param, ctx)
        return rate


class Pace:
    """Lets batches through at a rate; the first one at once."""

    def __init__(self, rate_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._due_at = clock()

    @property
    def batch(self) -> int:
        """How many go at once."""
        return max(1, int(self._rate_per_s * BATCH_S))

    def wait(self, pause: Callable[[float], None], count: int) -> None:
        """Return when so many may go, after a `pause` of seconds if need be."""
        now = self._clock()
        if self._due_at > now:
            pause(self._due_at - now)
        self._due_at = max(self._due_at, now - LATE_MAX_S) + count / self._rate_per_s
