"""When a pod looks for jobs that it owns and does not run: see `tasks.orphans`.

Postgres may commit a claim long after the connection that sent it was lost: a commit that waits
for a standby or a slow disk, a row that somebody held. So the looks go on for a while after a
doubt, and now and then without one.
"""

from typing import Final

LATE_S: Final = 15.0
"""No transaction of ours stays open for longer; only its commit may take more."""
APART_S: Final = 30.0
"""Of the looks without a doubt: far below the threshold of a sweep, which would find them too."""


class OrphanLooks:
    """The looks of one pod, by trio's clock."""

    def __init__(self, *, apart_s: float) -> None:
        """`apart_s`: seconds between two looks while there is doubt, but for the first."""
        self._apart_s = apart_s
        self._is_first = False
        self._lost_seen = 0
        self._until = float("-inf")
        self._looked_at = float("-inf")

    def doubted(self, now: float) -> None:
        """A call failed, or the pod was not sure of itself."""
        self._is_first = True
        self._until = now + LATE_S

    def is_due(self, now: float, *, lost_count: int) -> bool:
        """Tell whether to look; `lost_count`: attempts that ended here and told nobody, ever."""
        apart_s = self._apart_s if now < self._until else APART_S
        is_asked = self._is_first or lost_count != self._lost_seen
        return is_asked or now - self._looked_at >= apart_s

    def begun(self, now: float, *, lost_count: int) -> None:
        """It looks: what ends from now on is looked for the next time."""
        self._is_first, self._lost_seen, self._looked_at = False, lost_count, now
