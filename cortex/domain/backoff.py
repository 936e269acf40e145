"""Exponential backoff and slow start as pure rules: no clock, every random draw is injected."""

import math
import random
from typing import Final

import attrs

_TIMES_MAX: Final = 300
"""Keeps floats in range: by then growth has long reached any limit."""


def grown(first: float, factor: float, times: float) -> float:
    """Return `first * factor ** times`, for a `factor` up to 10."""
    return first * math.pow(factor, min(times, _TIMES_MAX))


@attrs.frozen(kw_only=True)
class Backoff:
    """Growing pauses: the nth is at most `min(cap_s, base_s * multiplier ** (n - 1))` seconds."""

    base_s: float = 1.0
    cap_s: float = 300.0
    multiplier: float = 2.0

    def longest_s(self, nth: int) -> float:
        """Return the longest pause after the `nth` failure in a row, counted from 1."""
        return min(self.cap_s, grown(self.base_s, self.multiplier, nth - 1))

    def pause_s(
        self, nth: int, *, rng: random.Random, least: float = 0.0, most: float = 1.0
    ) -> float:
        """Draw the pause after the `nth` failure: uniform from `least` to `most` of the longest."""
        return self.longest_s(nth) * rng.uniform(least, most)


class GrowingLimit:
    """How many may begin after an interruption: few, then more, and at last any number."""

    def __init__(self, *, first: int, unlimited_from: int) -> None:
        """From `unlimited_from` on there is no limit: `value` is infinite."""
        self._first = first
        self._unlimited_from = unlimited_from
        self.value: float = first

    @property
    def is_unlimited(self) -> bool:
        return self.value == math.inf

    def lift(self) -> None:
        """Let any number begin."""
        self.value = math.inf

    def restart(self) -> None:
        """Begin with a few again."""
        self.value = self._first

    def grow_to(self, value: float) -> None:
        """Raise the limit; only a restart lowers it."""
        self.value = math.inf if value >= self._unlimited_from else max(self.value, value)
