"""When to look at the database for whoever waits: soon after news, seldom without, never often."""

from typing import Final

GAP_GROWTH: Final = 1.5
LATE_S: Final = 0.02
"""What timers and whatever else runs make of an instant."""


class PollRate:
    """Paces the looks of one loop. Instants are seconds of any one clock that never goes back."""

    def __init__(self, *, gap_s: float = 0.25, quiet_gap_s: float = 1.0, burst: int = 3) -> None:
        """`gap_s` is the mean between two looks at least; `burst` looks may follow at once.

        Looks that find nothing lie further and further apart, up to `quiet_gap_s`.
        """
        self._gap_s = gap_s
        self._quiet_gap_s = quiet_gap_s
        self._saved_s = (burst - 1) * gap_s
        self._spent_until = float("-inf")
        self._looked_at = float("-inf")
        self._pause_s = gap_s

    @property
    def soonest(self) -> float:
        """When one may look at the earliest, if there is a reason to."""
        return self._spent_until - self._saved_s

    @property
    def due(self) -> float:
        """When to look without a reason."""
        return max(self.soonest, self._looked_at + self._pause_s)

    def looked(self, now: float, *, found: bool) -> None:
        """One look was begun at this instant; `found`: it, or what led to it, was news."""
        # A little late is no reason to let all that follow be later, too.
        self._looked_at = self.due if 0.0 <= now - self.due <= LATE_S else now
        self._spent_until = max(self._spent_until, now) + self._gap_s
        longer_s = min(self._pause_s * GAP_GROWTH, self._quiet_gap_s)
        self._pause_s = self._gap_s if found else longer_s
