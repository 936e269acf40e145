"""Identifiers: time-ordered UUIDs from an injected clock and an injected source of chance."""

import random
from uuid import UUID


def uuid7(unix_ms: int, rng: random.Random) -> UUID:
    """Make a UUIDv7 (RFC 9562): 48 bits of milliseconds, 74 random bits.

    Unique across processes only if `rng` is seeded from the operating system.
    """
    chance = rng.getrandbits(74)
    return UUID(
        int=(unix_ms & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (chance >> 62) << 64
        | 0b10 << 62
        | chance & (1 << 62) - 1
    )
