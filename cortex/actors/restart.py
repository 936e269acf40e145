"""How often and how soon a crashed actor is run again: pure rules, no clock, no trio."""

import random
from collections import deque
from typing import Final

import attrs

from cortex.domain.backoff import Backoff

_BACKOFF: Final = Backoff(base_s=0.1, cap_s=10.0)
_LEAST: Final = 0.5
"""The part of each pause that is not random."""


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """Restarts one child up to `max_restarts` times within any `window_s` seconds.

    It waits by `backoff` before each restart in a window; a random draw takes off up to half.
    `is_permanent` makes a normal return a crash, too. Raises `ValueError` for a policy that could
    never escalate because its own backoff outlasts the window.
    """

    max_restarts: int = 5
    window_s: float = 60.0
    backoff: Backoff = _BACKOFF
    is_permanent: bool = False

    def __attrs_post_init__(self) -> None:
        if self.max_restarts < 0 or self.backoff.base_s <= 0:
            raise ValueError("max_restarts must be at least 0 and backoff.base_s above 0")
        longest_s = sum(self.backoff.longest_s(n) for n in range(1, self.max_restarts + 1))
        if longest_s >= self.window_s:
            raise ValueError(
                f"{self.max_restarts} back-offs take up to {longest_s:g} s and so never fall "
                f"within window_s={self.window_s:g}: this policy would restart for ever"
            )

    def backoff_s(self, nth: int, rng: random.Random) -> float:
        """Seconds to wait before the `nth` restart in a window (from 1)."""
        return self.backoff.pause_s(nth, rng=rng, least=_LEAST)


class CrashWindow:
    """The instants of one child's crashes within the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._crashed_at: deque[float] = deque()

    def add(self, now: float) -> int:
        """Record a crash at `now` (monotonic seconds); return how many fall within the window."""
        self._crashed_at.append(now)
        while self._crashed_at[0] <= now - self._window_s:
            self._crashed_at.popleft()
        return len(self._crashed_at)
