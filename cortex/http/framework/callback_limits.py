"""Bounds what anybody may POST to callback URLs.

Owns: a rate for each address, and its wrong tokens. Both are wide: a provider sends the events of
all its customers from a few addresses, and goes on for days to URLs that are deleted. Guesses need
no narrow bound, as a token has 256 bits.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from cortex.http.framework.limits import Buckets, LockOut, Rate, household
from cortex.http.framework.problem import RateLimitedError

RATE: Final = Rate(burst=500, per_s=100)
MISSES_MAX: Final = 200
LOCKED_S: Final = 60.0
_log = structlog.get_logger(__name__)


class CallbackLimits:
    """Limits per address."""

    def __init__(self, *, now: Callable[[], float] = trio.current_time) -> None:
        self._posts: Buckets[str] = Buckets(RATE, now=now)
        self._misses: LockOut[str] = LockOut(misses_max=MISSES_MAX, for_s=LOCKED_S, now=now)

    def admit(self, address: str) -> None:
        """Raise `RateLimitedError` for an address that sent, or guessed, too much."""
        who = household(address)
        if (locked_s := self._misses.locked_s(who)) > 0:
            raise RateLimitedError("too many unknown callbacks", wait_s=locked_s)
        if (wait_s := self._posts.take(who)) > 0:
            raise RateLimitedError("too many callbacks from this address", wait_s=wait_s)

    def missed(self, address: str) -> None:
        """Count a token that opens nothing."""
        if self._misses.miss(household(address)):
            _log.warning("unknown callbacks locked out", address=address, locked_s=LOCKED_S)
