"""How fast a pod claims again after an outage of the database: a few jobs at first, then doubling.

All pods come back in the same second, and each job that begins again reads what it had done. Once
the ramp has reached `FULL`, after about a second and a half, it holds nobody back any more.
"""

from typing import Final

FIRST: Final = 16
"""Claims of a pod in the first moment."""
DOUBLES_IN_S: Final = 0.25
FULL: Final = 1000
"""From here on a pod claims as much as it has room for: its usual number of slots."""


class ClaimRamp:
    """The claims that one pod may make by an instant of trio's clock; no outage: any number."""

    def __init__(self) -> None:
        self._is_out = False
        self._began: float | None = None
        self._claimed_count = 0

    def broken(self) -> None:
        """The database is away: the next look after it begins a ramp."""
        self._is_out = True

    def room(self, now: float) -> float:
        """Return how many more may be claimed now; the database is there."""
        if self._is_out:
            self._is_out, self._began, self._claimed_count = False, now, 0
        if self._began is None:
            return float("inf")
        allowed = FIRST * 2 ** ((now - self._began) / DOUBLES_IN_S)
        if allowed >= FULL:
            self._began = None
            return float("inf")
        return max(0, int(allowed) - self._claimed_count)

    def claimed(self, count: int) -> None:
        """Count what was claimed."""
        self._claimed_count += count
