"""What a pod may believe about itself: whether it holds its lock, and since when.

Written by the heartbeat; read by the dispatcher (claim only when sure) and by the takeover (judge
others only when settled). On trio's monotonic clock: the wall clock decides nothing here.
"""

import trio


class Standing:
    """A pod's own view of its liveness."""

    def __init__(self, *, fence_s: float, settle_s: float) -> None:
        """`fence_s`: silence after which it trusts itself no more; `settle_s`: calm to judge."""
        self._fence_s = fence_s
        self._settle_s = settle_s
        self._held_since: float | None = None
        self._has_lost_once = False
        self._beat_sent_at = float("-inf")

    @property
    def is_sure(self) -> bool:
        """It holds its lock, and a heartbeat sent not long ago succeeded."""
        return self.is_locked and not self.is_fenced

    @property
    def is_locked(self) -> bool:
        """It holds its lock, as far as it knows."""
        return self._held_since is not None

    @property
    def is_fenced(self) -> bool:
        """Its heartbeats have failed for so long that others may have taken its jobs."""
        return trio.current_time() - self._beat_sent_at > self._fence_s

    @property
    def fence_in_s(self) -> float:
        """Seconds until it is fenced unless a heartbeat succeeds."""
        return self._beat_sent_at + self._fence_s - trio.current_time()

    @property
    def may_judge(self) -> bool:
        """It may declare others dead: its own link has been well for a while."""
        if self._held_since is None:
            return False
        return not self._has_lost_once or trio.current_time() - self._held_since >= self._settle_s

    def beaten(self, sent_at: float) -> None:
        """A heartbeat that was sent at this instant succeeded."""
        self._beat_sent_at = sent_at

    def locked(self) -> None:
        """The lock is held, from now on."""
        self._held_since = trio.current_time()

    def lost(self) -> None:
        """The connection that held the lock is gone."""
        self._held_since = None
        self._has_lost_once = True
