"""The link to Postgres as seen from here: how quick, or since when silent."""

from typing import Final

from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError

STALE_AFTER_S: Final = 3.0
"""Without an answer; in a quiet minute there is one each second."""
AGAIN_BACKOFF: Final = Backoff(base_s=0.1, cap_s=1.0)
"""So that the screen is fresh within two seconds of the database's return."""
SMOOTHING: Final = 0.2


class Link:
    """Fed by the poller. Instants are the clock's seconds."""

    def __init__(self, now: float) -> None:
        self._answered_at = now
        self._took_s: float | None = None
        self._failures = 0
        self.error: CortexError | None = None
        """Why it does not answer; None while it does."""

    def answered(self, now: float, *, took_s: float) -> None:
        """A statement was answered."""
        self._answered_at = now
        before_s = took_s if self._took_s is None else self._took_s
        self._took_s = before_s + SMOOTHING * (took_s - before_s)
        self._failures = 0
        self.error = None

    def resumed(self, now: float) -> None:
        """This process stood still until now: nobody was asked, so that nobody was silent."""
        self._answered_at = now

    def failed(self, error: CortexError) -> None:
        """A statement failed because the database is not there, or in trouble."""
        self._failures += 1
        self.error = error

    def is_stale(self, now: float) -> bool:
        """What is on the screen may be wrong by now."""
        return self.error is not None or now - self._answered_at > STALE_AFTER_S

    def silent_s(self, now: float) -> float:
        """Return the seconds since the last answer."""
        return max(0.0, now - self._answered_at)

    @property
    def took_ms(self) -> float | None:
        """How long an answer takes, smoothed; None: there was none yet."""
        return None if self._took_s is None else self._took_s * 1000

    @property
    def again_in_s(self) -> float:
        """How long to wait after the failures up to now; 0 while all is well."""
        if not self._failures:
            return 0.0
        return AGAIN_BACKOFF.longest_s(self._failures)
