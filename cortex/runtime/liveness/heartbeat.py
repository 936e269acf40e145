"""Renews the pod's sign of life: one statement per interval for the pod and all its jobs.

Owns: one dedicated connection, the pod's session lock on it, and the pod's `SelfFence`.
Reads and writes: `pod`, and `heartbeat_at` of the pod's running jobs.
Invariants: a job that the database does not confirm as this pod's is stopped at once. If no
heartbeat has succeeded within `fence_s` (by the monotonic clock, counted from when the last good
one was sent), all jobs are stopped.

On failure: a failed heartbeat is logged, never fatal, and repeated after a jittered pause: soon
without the lock, seldom with the lock and a shortage in the database. A lost connection is
reopened, the lock taken again, the pod registered if its row is gone, and the jobs checked by a
heartbeat before anything else.
On stop: no last heartbeat is needed: the pod marks itself STOPPED when its jobs are gone.
"""

import random
from collections.abc import Callable

import attrs
import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError
from cortex.postgres.bridge import Port
from cortex.postgres.dedicated import Dedicated
from cortex.runtime.running import Observer, RunningJobs, Stop
from cortex.runtime.self_fence import SelfFence
from cortex.store import pods
from cortex.store.pods import Pod, Vitals

RECONNECT_MAX_S = 2.0
"""Short: while the lock is not held, others may take this pod's jobs."""
LOCK_BACKOFF = Backoff(base_s=0.05, cap_s=RECONNECT_MAX_S)
RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class Heartbeat(Observer):
    name = "heartbeat"

    def __init__(
        self,
        port: Port,
        *,
        pod: Pod,
        running: RunningJobs,
        self_fence: SelfFence,
        vitals: Callable[[], Vitals],
        interval_s: float,
        rng: random.Random,
    ) -> None:
        self._port = port
        self._pod = pod
        self._running = running
        self._self_fence = self_fence
        self._vitals = vitals
        self._interval_s = interval_s
        self._rng = rng
        self._pacer = Pacer(rng=rng)
        self._backoff = LoopBackoff(rng=rng, backoff=Backoff(base_s=RETRY_S, cap_s=RETRY_S))
        self._session: Dedicated = port.dedicated(on_lost=self._on_lost)

    def beat_soon(self) -> None:
        """Beat at once, because the reported state has changed."""
        self._pacer.wake()

    def first_job_began(self) -> None:
        self.beat_soon()

    def _on_lost(self) -> None:
        self._self_fence.lost()
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Beat until cancelled; ready when the lock is held and the pod is registered."""
        try:
            async with trio.open_nursery() as nursery:
                await self._lock()
                await self._beat()
                nursery.start_soon(self._fence)
                task_status.started()
                while True:
                    await self._pacer.wait(self._interval_s)
                    await self._beat_or_log()
        finally:
            self._self_fence.lost()
            with trio.move_on_after(2.0, shield=True):
                await self._port.close(self._session)

    async def tick(self) -> None:
        """Beat once; stop the jobs that are no longer this pod's."""
        has_lock = self._session.is_open and self._self_fence.is_locked
        if not has_lock:
            self._self_fence.lost()
            await self._lock()
        elif self._self_fence.is_fenced:
            # It may have been asleep for so long that housekeeping has deleted its row.
            await self._register()
        await self._beat()

    async def _beat(self) -> None:
        leases = self._running.leases
        sent_at = trio.current_time()
        crash_point("before_beat")
        owned = await self._port.cross(
            pods.beat, self._session, pod_id=self._pod.id, leases=leases, vitals=self._vitals()
        )
        crash_point("after_beat")
        for lease in self._running.keep_only(leases, owned):
            _log.warning("lease lost", job=str(lease.job_id), attempt=lease.attempt)
        self._self_fence.beaten(sent_at)  # last: waiting calls go on from here

    async def _beat_or_log(self) -> None:
        try:
            await self.tick()
        except CortexError as error:
            self._self_fence.missed()
            pause_s = self._backoff.failed(_log, "heartbeat failed", error)
            longest_s = self._interval_s if self._self_fence.is_locked else RECONNECT_MAX_S
            await trio.sleep(min(pause_s, longest_s))
            self._pacer.wake()
        else:
            self._backoff.succeeded()

    async def _register(self) -> None:
        """Write the pod's row, with the session that holds the lock, on that session itself.

        Later statements of an older session cannot name that one again: it has ended.
        """
        crash_point("before_register")
        await self._port.cross(pods.register, self._session, self._pod)
        crash_point("after_register")

    async def _lock(self) -> None:
        """Connect, take the lock, and register the session that holds it.

        The server may notice the end of the old session late: that one is waited for. A session of
        a foreign login is not: any login may take any advisory lock, so the pod takes another key.
        """
        await self._port.open(self._session)
        tries = 0
        while not self._port.is_pooled:  # through one, there is no lock: only heartbeats show life
            attempt = await self._port.cross(
                pods.lock, self._session, self._pod.lock_key, pod_id=self._pod.id
            )
            if attempt.is_held:
                break
            tries += 1
            if attempt.is_foreign:
                _log.warning("pod lock held by a foreign login", hint="cortex doctor names it")
                self._pod = attrs.evolve(self._pod, lock_key=self._rng.getrandbits(63))
            await trio.sleep(LOCK_BACKOFF.pause_s(tries, rng=self._rng, least=0.5))
        await self._register()
        self._self_fence.locked()

    async def _fence(self) -> None:
        """Stop all jobs when no heartbeat has succeeded for too long; logged once each time."""
        is_logged = False
        while True:
            await trio.sleep(max(0.05, self._self_fence.fence_in_s + 0.01))
            if not self._self_fence.is_fenced:
                is_logged = False
            elif count := len(self._running):
                if not is_logged:
                    _log.error("fence reached: all jobs stopped", jobs=count)
                is_logged = True
                self._running.end_all(Stop.LEASE_LOST)
