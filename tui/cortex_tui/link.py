"""The state of the link to Postgres: its latency, or since when it is silent."""

from typing import Final

from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError

STALE_AFTER_S: Final = 3.0
"""Without a response; in a quiet minute there is one each second."""
AGAIN_BACKOFF: Final = Backoff(base_s=0.1, cap_s=1.0)
"""The screen is up to date within two seconds of the database's return."""
SMOOTHING: Final = 0.2


class Link:
    """Updated by the poller. Times are the clock's seconds."""

    def __init__(self, now: float) -> None:
        self._answered_at = now
        self._took_s: float | None = None
        self._failures = 0
        self.error: CortexError | None = None
        """Why the database does not answer; None while it does."""

    def answered(self, now: float, *, took_s: float) -> None:
        """Record that a statement returned."""
        self._answered_at = now
        before_s = took_s if self._took_s is None else self._took_s
        self._took_s = before_s + SMOOTHING * (took_s - before_s)
        self._failures = 0
        self.error = None

    def resumed(self, now: float) -> None:
        """Record that this process was suspended until now: the gap is not silence."""
        self._answered_at = now

    def failed(self, error: CortexError) -> None:
        """Record that a statement failed because the database is unavailable or in trouble."""
        self._failures += 1
        self.error = error

    def is_stale(self, now: float) -> bool:
        """Whether the screen may be outdated."""
        return self.error is not None or now - self._answered_at > STALE_AFTER_S

    def silent_s(self, now: float) -> float:
        """Return the seconds since the last response."""
        return max(0.0, now - self._answered_at)

    @property
    def took_ms(self) -> float | None:
        """The smoothed latency; None before the first response."""
        return None if self._took_s is None else self._took_s * 1000

    @property
    def again_in_s(self) -> float:
        """The delay before the next try after failures; 0 if there are none."""
        if not self._failures:
            return 0.0
        return AGAIN_BACKOFF.longest_s(self._failures)
