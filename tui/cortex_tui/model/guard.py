"""The quiet time before a key may decide: nobody approves what just appeared under the cursor."""

from typing import Final

QUIET_S: Final = 0.4
"""The time without any key."""
LONGER_S: Final = 0.1
"""Each key that comes too early adds to the quiet time: the operator is typing, not reading."""
QUIET_MAX_S: Final = 1.5


class Guard:
    """Times are seconds of a monotonic clock, passed in by the caller."""

    def __init__(self, now: float) -> None:
        self._quiet_s = QUIET_S
        self._since = now

    def restart(self, now: float) -> None:
        """Start the quiet time: something else is in front of the operator."""
        self._quiet_s = QUIET_S
        self._since = now

    def skip(self, now: float) -> None:
        """Let the next key count: it belongs to the previous decision."""
        self._quiet_s = 0.0
        self._since = now

    def press(self, now: float, *, came_at: float) -> bool:
        """Take a key; return whether it counts. A key that comes too early restarts the quiet time.

        The time of arrival decides: while the app was suspended there was no quiet time.
        """
        if self.is_armed(came_at):
            return True
        self._quiet_s = min(QUIET_MAX_S, self._quiet_s + LONGER_S)
        self._since = now
        return False

    def is_armed(self, now: float) -> bool:
        """Whether the next key counts."""
        return now >= self.armed_at

    def filled(self, now: float) -> float:
        """The part of the quiet time that has passed, from 0 to 1."""
        if self.is_armed(now):
            return 1.0
        return max(0.0, min(1.0, (now - self._since) / self._quiet_s))

    @property
    def armed_at(self) -> float:
        """The time from which the next key counts, if none comes before."""
        return self._since + self._quiet_s
