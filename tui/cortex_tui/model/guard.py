"""The silence before a key may decide: nobody agrees to what has just come under their fingers."""

from typing import Final

QUIET_S: Final = 0.4
"""So long there must be no key."""
LONGER_S: Final = 0.1
"""Each key that came too early makes the silence longer: who types on does not look."""
QUIET_MAX_S: Final = 1.5


class Guard:
    """Instants are a clock's seconds, which never go back; they are handed in."""

    def __init__(self, now: float) -> None:
        self._quiet_s = QUIET_S
        self._since = now

    def restart(self, now: float) -> None:
        """Something else is in front of the operator: the silence begins."""
        self._quiet_s = QUIET_S
        self._since = now

    def skip(self, now: float) -> None:
        """Let the next key count: it belongs to what was decided just now."""
        self._quiet_s = 0.0
        self._since = now

    def press(self, now: float, *, came_at: float) -> bool:
        """Take a key; return whether it counts. One that does not begins the silence anew.

        What counts is when it came: while the app stood still there was no silence.
        """
        if self.is_armed(came_at):
            return True
        self._quiet_s = min(QUIET_MAX_S, self._quiet_s + LONGER_S)
        self._since = now
        return False

    def is_armed(self, now: float) -> bool:
        """The next key counts."""
        return now >= self.armed_at

    def filled(self, now: float) -> float:
        """How much of the silence has passed, from 0 to 1."""
        if self.is_armed(now):
            return 1.0
        return max(0.0, min(1.0, (now - self._since) / self._quiet_s))

    @property
    def armed_at(self) -> float:
        """When the next key counts, if none comes before."""
        return self._since + self._quiet_s
