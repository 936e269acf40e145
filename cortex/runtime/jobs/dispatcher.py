"""Claims work: as many ready tasks as there are free slots, one statement a batch.

Owns: the decision when to claim, and the start of a job actor for each claim.
Reads and writes: tasks and jobs, by `tasks.claim` and `tasks.promote`.
Invariants: never more claims than free slots; nothing is claimed while the pod is not sure of
itself (see `standing`), cannot write what its jobs have done, or is asked to drain. A notification
is a hint: polling finds the same work without it.

On failure: an outage is waited out; after it, what the pod owns but does not run (a claim whose
reply was lost, jobs that the fence stopped) is released, so that the next claim raises its attempt
(see `orphan_looks`; never beside a claim, whose jobs nobody knows before its reply), and claims
begin slowly again (see `claim_ramp`), each pod at a moment of its own.
On stop: a claim in flight is shielded by the port, and what it returns is still started, so that
its actors hand the jobs back. The pod releases once more what it owns, before it signs off.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.domain.backoff import Backoff, GrowingLimit, grown
from cortex.domain.errors import UnavailableError
from cortex.domain.job import Claim, Release
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.jobs.job_actor import JobActors
from cortex.runtime.running import RunningJob, RunningJobs
from cortex.runtime.self_fence import SelfFence
from cortex.store import tasks

# --- How fast a pod claims again after an outage: a few jobs at first, then doubling.


FIRST: Final = 16
"""Claims of a pod in the first moment."""
DOUBLES_IN_S: Final = 0.25
FULL: Final = 1000
"""From here on a pod claims as much as it has room for: its usual number of slots."""


class ClaimSlowStart:
    """The claims that one pod may make by an instant of trio's clock; no outage: any number."""

    def __init__(self) -> None:
        self._is_out = False
        self._limit = GrowingLimit(first=FIRST, unlimited_from=FULL)
        self._limit.lift()
        self._began = 0.0
        self._claimed_count = 0

    def broken(self) -> None:
        """The database is away: the next look after it begins a ramp."""
        self._is_out = True

    def room(self, now: float) -> float:
        """Return how many more may be claimed now; the database is there."""
        if self._is_out:
            self._is_out, self._began, self._claimed_count = False, now, 0
            self._limit.restart()
        self._limit.grow_to(grown(FIRST, 2.0, (now - self._began) / DOUBLES_IN_S))
        if self._limit.is_unlimited:
            return math.inf
        return max(0, int(self._limit.value) - self._claimed_count)

    def claimed(self, count: int) -> None:
        """Count what was claimed."""
        self._claimed_count += count


# ---


BATCH_MAX: Final = 500
ROOM_MIN: Final = 250
"""Free slots that are worth a claim of their own while there is more work than slots."""
CROWDED_POLL_S: Final = 0.02
STARTED_AT_ONCE: Final = 60
"""Between so many starts the committer and the database's replies get their turn."""
PROMOTE_REST: Final = 9.0
"""Rest after a promote, as a multiple of what it took."""

_log = structlog.get_logger(__name__)


class Dispatcher:
    """The actor; `hint` may be called from anywhere in the trio thread."""

    name = "dispatcher"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        config_id: int,
        tools: Sequence[str] = (),
        actors: JobActors,
        jobs_nursery: trio.Nursery,
        standing: SelfFence,
        pacer: Pacer,
        poll_s: float,
    ) -> None:
        self._port = port
        self._pod_id = pod_id
        self._config_id = config_id
        self._tools = tools
        self._actors = actors
        self._jobs_nursery = jobs_nursery
        self._standing = standing
        self._pacer = pacer
        self._poll_s = poll_s
        self._running: RunningJobs = actors.running
        self._types = actors.registry.shared_names
        self._promote_next = True
        self._promoted_at = float("-inf")
        self._is_crowded = False
        self._promote_not_before = float("-inf")
        self._looks = OrphanScan(apart_s=poll_s)
        self._is_failing = False
        """The last claim failed, for whatever reason."""
        self._ramp = ClaimSlowStart()
        self._backoff = LoopBackoff(rng=actors.rng, backoff=Backoff(base_s=poll_s, cap_s=poll_s))

    def hint(self, *, promote: bool = False) -> None:
        """There may be work; with `promote`, a named queue may move on."""
        self._promote_next = self._promote_next or promote
        self._pacer.wake()

    def on_ended(self, job: RunningJob) -> None:
        """A job left its slot."""
        if job.is_queued or job.is_isolated:
            self.hint(promote=job.is_queued)
        elif self._is_crowded and self._has_room:
            self._pacer.wake()

    @property
    def may_claim(self) -> bool:
        """It can claim: sure of itself, its last claim went well, and nobody asked it to drain."""
        is_held_up = self._is_failing or self._actors.committer.is_held_up
        return self._standing.is_sure and not is_held_up and not self._running.is_drain_requested

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Claim until cancelled."""
        self._running.on_ended = self.on_ended
        self._running.on_undrained = partial(self.hint, promote=True)
        task_status.started()
        while True:
            try:
                pause_s = await self.tick()
            except UnavailableError as error:
                self._promote_next = self._is_failing = True
                self._doubted()
                # Hints do not cut it short: there may be many.
                await trio.sleep(self._backoff.failed(_log, "claim failed", error))
                continue
            except Exception:
                self._is_failing = True
                raise
            self._is_failing = False
            self._backoff.succeeded()
            if pause_s > 0:
                woken = await self._pacer.wait(pause_s)
                self._promote_next = self._promote_next or not woken
            else:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> float:
        """Claim one batch and start its actors; return how long to wait for the next one."""
        if self._is_barred():
            return self._poll_s
        now, lost_count = trio.current_time(), self._running.lost_count
        if self._looks.is_due(now, lost_count=lost_count):
            self._looks.begun(now, lost_count=lost_count)
            await self.release_orphans()
        if self._running.is_drain_requested:
            return self._poll_s
        room = self._ramp.room(trio.current_time())
        if room <= 0:
            return DOUBLES_IN_S / 2
        limit = int(min(self._running.free_slots, BATCH_MAX, room))
        if limit <= 0:
            self._is_crowded = True
            return CROWDED_POLL_S
        await self._promote()
        crash_point("before_claim")
        claims = await self._port(
            tasks.claim,
            pod_id=self._pod_id,
            types=self._types,
            limit=limit,
            config_id=self._config_id,
            isolated=self._actors.isolated_slots - self._running.isolated_count,
            isolated_types=self._actors.registry.isolated_names,
            tools=self._tools,
        )
        if claims:
            crash_point("after_claim")
        self._ramp.claimed(len(claims))
        self._actors.metrics.claimed(claims)
        await self._start(claims)
        if len(claims) < limit:
            self._is_crowded = False
            return self._until_promote_s() if self._promote_next else self._poll_s
        self._is_crowded = True
        return 0.0 if self._has_room else CROWDED_POLL_S

    def _is_barred(self) -> bool:
        """The database is in the way: once it is there again, claims begin slowly."""
        if not self._standing.is_sure:
            self._doubted()
            return True
        if self._actors.committer.is_held_up:
            self._ramp.broken()
            return True
        return False

    def _doubted(self) -> None:
        self._looks.doubted(trio.current_time())
        self._ramp.broken()

    @property
    def _has_room(self) -> bool:
        return self._running.free_slots >= min(ROOM_MIN, self._running.slots)

    async def _promote(self) -> None:
        """Make due tasks ready: when asked to, and as often as it polls, since none announces them.

        Its cost grows with the named queues that wait; it takes a tenth of the time at most.
        """
        now = trio.current_time()
        is_wanted = self._promote_next or now - self._promoted_at >= self._poll_s
        if not is_wanted or now < self._promote_not_before:
            return
        self._promote_next = False
        self._promoted_at = now
        crash_point("before_promote")
        await self._port(tasks.promote)
        crash_point("after_promote")
        took_s = trio.current_time() - now
        self._promote_not_before = trio.current_time() + PROMOTE_REST * took_s

    def _until_promote_s(self) -> float:
        return min(self._poll_s, max(0.0, self._promote_not_before - trio.current_time()))

    async def release_orphans(self) -> None:
        """Hand back what the pod owns and does not run, so that it goes on at once elsewhere."""
        known = self._running.known_ids
        orphans = await self._port(tasks.orphans, pod_id=self._pod_id, known=known)
        if orphans:
            _log.warning("released what does not run here", jobs=len(orphans))
            releases = [Release(lease=o, outcome="handed_back", is_counted=False) for o in orphans]
            crash_point("before_orphans")
            await self._port(tasks.release, pod_id=self._pod_id, operations=releases)
            crash_point("after_orphans")

    async def _start(self, claims: list[Claim]) -> None:
        for begun, claim in enumerate(claims):
            if begun % STARTED_AT_ONCE == STARTED_AT_ONCE - 1:
                await trio.lowlevel.cancel_shielded_checkpoint()
            job = self._running.add(claim, is_isolated=self._actors.isolates(claim))
            self._jobs_nursery.start_soon(self._actors.run, claim, job)


# --- When a pod looks for jobs that it owns and does not run: see `tasks.orphans`.


LATE_S: Final = 15.0
"""No transaction of ours stays open for longer; only its commit may take more."""
APART_S: Final = 30.0
"""Of the looks without a doubt: far below the threshold of a sweep, which would find them too."""


class OrphanScan:
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
