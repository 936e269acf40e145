"""The one home of wall clock, identifiers and randomness, so that a simulation can replace it.

Whatever decides a lease or a due time uses the database's clock, never this one.
"""

import random
import time
from collections.abc import Callable
from uuid import UUID

import attrs

from cortex.domain.ids import uuid7


@attrs.frozen
class Chance:
    """Where a process takes its random numbers and identifiers from."""

    rng: random.Random
    unix_ms: Callable[[], int]

    def new_id(self) -> UUID:
        """Make a time-ordered identifier."""
        return uuid7(self.unix_ms(), self.rng)


def system_chance() -> Chance:
    """Return the real thing: the operating system's randomness and the wall clock."""
    return Chance(random.SystemRandom(), lambda: time.time_ns() // 1_000_000)
