"""A pod's view of its own liveness: whether its jobs are its own, whether it may judge other pods.

Written by the heartbeat. Read by the dispatcher (claims only when sure), by every outside call
(begins only when sure), by the takeover and the sweeper (judge other pods only when settled). All
times are on trio's monotonic clock, never the wall clock. From when the last good heartbeat was
sent:

    |------------- fence_s -------------|                             it stops its jobs
    |------------------------- lease_s -------------------------|     nothing of them goes on
    |------------------------------ zombie_s ------------------------------|   others take them

The longest duration of a call decides how long before the end of the lease it may begin.
"""

import math

import trio


class SelfFence:
    """A pod's own view of its liveness."""

    def __init__(
        self,
        *,
        fence_s: float,
        settle_s: float,
        lease_s: float = math.inf,
        fresh_s: float = math.inf,
    ) -> None:
        """`fence_s`: silence after which the pod distrusts itself; `settle_s`: calm to judge.

        `lease_s`: silence after which nothing that it has begun may go on, a little before others
        take its jobs. `fresh_s`: silence after which a call that is longer than any lease waits for
        a heartbeat.
        """
        self._fence_s = fence_s
        self._settle_s = settle_s
        self._lease_s = lease_s
        self._fresh_s = fresh_s
        self._is_locked = False
        self._is_checked = False
        self._was_broken = False
        self._steady_since = math.inf
        self._beat_sent_at = -math.inf
        self._beat = trio.Event()

    @property
    def is_sure(self) -> bool:
        """The pod holds its lock, has checked its jobs since it took it, and beat lately."""
        return self._is_locked and self._is_checked and not self.is_fenced

    @property
    def is_locked(self) -> bool:
        """The pod holds its lock, as far as it knows."""
        return self._is_locked

    @property
    def is_fenced(self) -> bool:
        """Its heartbeats have failed for so long that others may have taken its jobs."""
        return self.silent_s > self._fence_s

    @property
    def silent_s(self) -> float:
        """Seconds since the last heartbeat that succeeded was sent."""
        return trio.current_time() - self._beat_sent_at

    @property
    def fence_in_s(self) -> float:
        """Seconds until it is fenced unless a heartbeat succeeds."""
        return self._fence_s - self.silent_s

    @property
    def may_judge(self) -> bool:
        """It may declare others dead, settled or new: its link has been healthy since its start."""
        return self.is_sure and (not self._was_broken or self.is_settled)

    @property
    def is_settled(self) -> bool:
        """Its own link has been healthy for a while, so the others' links may be, too."""
        return self.is_steady_for(self._settle_s)

    def is_steady_for(self, seconds: float) -> bool:
        """For this long it has held its lock, and every heartbeat has succeeded."""
        return self.is_sure and trio.current_time() - self._steady_since >= seconds

    def may_begin(self, call_s: float) -> bool:
        """A call of up to `call_s` may begin now, and ends before others can take its job.

        A call longer than the lease may begin while heartbeats succeed: when they fail, the fence
        cuts it.
        """
        if not self.is_sure:
            return False
        return self.silent_s + call_s <= self._lease_s or self.silent_s <= self._fresh_s

    async def until_it_may_begin(self, call_s: float) -> None:
        """Wait until `may_begin`.

        Ends with the job: all jobs are stopped when the fence is reached.
        """
        while not self.may_begin(call_s):
            await self._beat.wait()

    def beaten(self, sent_at: float) -> None:
        """A heartbeat sent at this instant succeeded, and the pod owns the jobs it named."""
        if self.is_fenced or math.isinf(self._steady_since):
            self._was_broken = self._was_broken or not math.isinf(self._beat_sent_at)
            self._steady_since = trio.current_time()
        self._is_checked = self._is_locked
        self._beat_sent_at = sent_at
        self._beat.set()
        self._beat = trio.Event()

    def missed(self) -> None:
        """A heartbeat failed: the others' may fail for the same reason."""
        self._was_broken = True
        self._steady_since = math.inf

    def locked(self) -> None:
        """The lock is held from now on; the jobs are still to be checked."""
        self._is_locked = True

    def lost(self) -> None:
        """The connection that held the lock is gone."""
        self._was_broken = True
        self._is_locked = self._is_checked = False
        self._steady_since = math.inf
