"""How often and how soon a crashed actor is run again: pure rules, no clock, no trio."""

import random
from collections import deque

import attrs

# Past this many doublings any first back-off is above any sane limit; keeps floats in range.
_DOUBLINGS_MAX = 60


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """Restarts one child up to `max_restarts` times within any `window_s` seconds.

    Before the n-th restart in a window it waits `backoff_first_s * 2**(n-1)` seconds, at most
    `backoff_max_s`, of which chance takes off up to half. `is_permanent` makes a normal return a
    crash too. Raises `ValueError` for a policy that could never escalate because its own back-off
    outlasts the window.
    """

    max_restarts: int = 5
    window_s: float = 60.0
    backoff_first_s: float = 0.1
    backoff_max_s: float = 10.0
    is_permanent: bool = False

    def __attrs_post_init__(self) -> None:
        if self.max_restarts < 0 or self.backoff_first_s <= 0:
            raise ValueError("max_restarts must be at least 0 and backoff_first_s above 0")
        longest_s = sum(self.longest_backoff_s(n) for n in range(1, self.max_restarts + 1))
        if longest_s >= self.window_s:
            raise ValueError(
                f"{self.max_restarts} back-offs take up to {longest_s:g} s and so never fall "
                f"within window_s={self.window_s:g}: this policy would restart for ever"
            )

    def longest_backoff_s(self, nth: int) -> float:
        """Seconds before the `nth` restart in a window (from 1), before jitter."""
        doublings = min(nth - 1, _DOUBLINGS_MAX)
        return min(self.backoff_max_s, self.backoff_first_s * 2.0**doublings)

    def backoff_s(self, nth: int, rng: random.Random) -> float:
        """Seconds to wait before the `nth` restart in a window (from 1)."""
        return self.longest_backoff_s(nth) * rng.uniform(0.5, 1.0)


class CrashWindow:
    """The instants of one child's crashes within the last `window_s` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._crashed_at: deque[float] = deque()

    def add(self, now: float) -> int:
        """Note a crash at `now` (monotonic seconds); return how many fall within the window."""
        self._crashed_at.append(now)
        while self._crashed_at[0] <= now - self._window_s:
            self._crashed_at.popleft()
        return len(self._crashed_at)
