"""The only source of wall clock, identifiers and randomness, so that a simulation can replace it.

Decisions about leases and due times use the database's clock, never this one.
"""

import random
import time
from collections.abc import Callable
from uuid import UUID

import attrs

# --- Identifiers: time-ordered UUIDs from an injected clock and injected randomness.


def uuid7(unix_ms: int, rng: random.Random) -> UUID:
    """Make a UUIDv7 (RFC 9562): 48 bits of milliseconds, 74 random bits.

    Unique across processes only if `rng` is seeded from the operating system.
    """
    return uuid7_of(unix_ms, rng.getrandbits(74))


def uuid7_of(unix_ms: int, chance: int) -> UUID:
    """Make a UUIDv7 of a time and 74 bits."""
    return UUID(
        int=(unix_ms & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (chance >> 62) << 64
        | 0b10 << 62
        | chance & (1 << 62) - 1
    )


# ---


@attrs.frozen
class Chance:
    """The source of a process's random numbers and identifiers."""

    rng: random.Random
    unix_ms: Callable[[], int]

    def new_id(self) -> UUID:
        return uuid7(self.unix_ms(), self.rng)


def system_chance() -> Chance:
    """Return the real source: the operating system's randomness and the wall clock."""
    return Chance(random.SystemRandom(), lambda: time.time_ns() // 1_000_000)


def seeded_chance(seed: int, unix_ms: Callable[[], int]) -> Chance:
    """Return a source that gives the same each time."""
    return Chance(random.Random(seed), unix_ms)
