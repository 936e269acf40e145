"""When to poll the database for waiting clients: soon after news, seldom without, never often."""

from typing import Final

GAP_GROWTH: Final = 1.5
LATE_S: Final = 0.02
"""Tolerance for late timers."""


class PollRate:
    """Paces the polls of one loop. Instants are seconds of any one clock that never goes back."""

    def __init__(self, *, gap_s: float = 0.25, quiet_gap_s: float = 1.0, burst: int = 3) -> None:
        """`gap_s` is the least mean gap between polls; `burst` polls may follow at once.

        Polls that find nothing lie further and further apart, up to `quiet_gap_s`.
        """
        self._gap_s = gap_s
        self._quiet_gap_s = quiet_gap_s
        self._saved_s = (burst - 1) * gap_s
        self._spent_until = float("-inf")
        self._polled_at = float("-inf")
        self._pause_s = gap_s

    @property
    def soonest(self) -> float:
        """The earliest instant of the next poll, if there is a reason for it."""
        return self._spent_until - self._saved_s

    @property
    def due(self) -> float:
        """The instant of the next poll without a reason."""
        return max(self.soonest, self._polled_at + self._pause_s)

    def polled(self, now: float, *, found: bool) -> None:
        """A poll began at this instant; `found`: it, or its reason, was news."""
        # A slightly late poll must not delay all following ones, too.
        self._polled_at = self.due if 0.0 <= now - self.due <= LATE_S else now
        self._spent_until = max(self._spent_until, now) + self._gap_s
        longer_s = min(self._pause_s * GAP_GROWTH, self._quiet_gap_s)
        self._pause_s = self._gap_s if found else longer_s
