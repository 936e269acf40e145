"""Claims work: as many ready tasks as there are free slots, in one statement per batch.

Bulk operations have one slot of their own, beside the pod's slots: people start them when all those
are taken. A claim of its own fills it.

Owns: the decision when to claim, and the start of a job actor for each claim.
Reads and writes: tasks and jobs, by `tasks.claim` and `tasks.promote`.
Invariants: never more claims than free slots, and one bulk operation. Nothing is claimed while the
pod is not sure of itself (see `self_fence`), cannot write what its jobs have done, or is asked to
drain. A notification is a hint: polling finds the same work without it.

On failure: an outage is waited out. After it, what the pod owns but does not run (a claim whose
reply was lost, jobs that the fence stopped) is released, so that the next claim raises its attempt
(see `OrphanScan`). It never runs beside a claim, whose jobs are unknown before its reply. Claims
begin slowly again (see `ClaimSlowStart`), each pod at a moment of its own.
On stop: a claim in flight is shielded by the port, and what it returns is still started, so that
its actors hand the jobs back. The pod releases once more what it owns, before it signs off.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.runner import Run
from cortex.actors.ticker import Pacer
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff, GrowingLimit, grown
from cortex.domain.errors import UnavailableError
from cortex.domain.job import BULK, Claim, Release
from cortex.postgres.bridge import Port
from cortex.runtime.jobs.job_actor import JobActors
from cortex.runtime.running import Observer, RunningJob, RunningJobs
from cortex.runtime.self_fence import SelfFence
from cortex.store import tasks
from cortex.store.background.runners import DISPATCH

# --- Slow start of claims after an outage: a few jobs at first, then doubling.


FIRST: Final = 16
"""Claims of a pod in the first moment."""
DOUBLES_IN_S: Final = 0.25
FULL: Final = 1000
"""From here on a pod claims as much as it has room for: its usual number of slots."""


class ClaimSlowStart:
    """How many jobs one pod may claim by an instant of trio's clock; unlimited without outage."""

    def __init__(self) -> None:
        self._is_out = False
        self._limit = GrowingLimit(first=FIRST, unlimited_from=FULL)
        self._limit.lift()
        self._began = 0.0
        self._claimed_count = 0

    def broken(self) -> None:
        """The database is unavailable: the next claim after it begins a slow start."""
        self._is_out = True

    def room(self, now: float) -> float:
        """Return how many more jobs may be claimed now; the database is available."""
        if self._is_out:
            self._is_out, self._began, self._claimed_count = False, now, 0
            self._limit.restart()
        self._limit.grow_to(grown(FIRST, 2.0, (now - self._began) / DOUBLES_IN_S))
        if self._limit.is_unlimited:
            return math.inf
        return max(0, int(self._limit.value) - self._claimed_count)

    def claimed(self, count: int) -> None:
        self._claimed_count += count


# ---


BATCH_MAX: Final = 500
ROOM_MIN: Final = 250
"""Free slots that justify a claim while there is more work than slots."""
CROWDED_POLL_S: Final = 0.02
BATCH_AHEAD: Final = 50
"""From so many jobs on, the next claim is sent before they have started."""
STARTED_AT_ONCE: Final = 60
"""After this many starts, the committer and database replies get their turn."""
BULK_APART_S: Final = 0.25
"""Between two claims of bulk operations, which cost the other jobs a statement."""
PROMOTE_REST: Final = 9.0
"""Pause after a promote, as a multiple of its duration."""

_log = structlog.get_logger(__name__)


class Dispatcher(Observer):
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
        self_fence: SelfFence,
        pacer: Pacer,
        poll_s: float,
        on_run: Callable[[Run], None] = lambda _: None,
        only: UUID | None = None,
    ) -> None:
        """`only`: claim this job and no other."""
        self._only = only
        self._on_run = on_run
        self._port = port
        self._pod_id = pod_id
        self._config_id = config_id
        self._tools = tools
        self._actors = actors
        self._jobs_nursery = jobs_nursery
        self._self_fence = self_fence
        self._pacer = pacer
        self._poll_s = poll_s
        self._running: RunningJobs = actors.running
        names = actors.registry.shared_names
        self._types = tuple(name for name in names if name != BULK)
        self._has_bulk = BULK in names and only is None
        self._bulk_next = self._has_bulk
        self._bulk_not_before = float("-inf")
        self._promote_next = True
        self._promoted_at = float("-inf")
        self._is_crowded = False
        self._unstarted_count = 0
        self._unstarted_isolated_count = 0
        self._all_started = trio.Event()
        self._all_started.set()
        self._promote_not_before = float("-inf")
        self._orphan_scan = OrphanScan(apart_s=poll_s)
        self._is_failing = False
        """The last claim failed, for any reason."""
        self._claimed_count = 0
        """In this tick."""
        self.claims_left = math.inf
        """How many more jobs it may claim; the pod of a tick has a budget."""
        self.claimed_at = self.found_nothing_at = -math.inf
        """When its last claim returned jobs, and when one returned none."""
        self._ramp = ClaimSlowStart()
        self._backoff = LoopBackoff(rng=actors.rng, backoff=Backoff(base_s=poll_s, cap_s=poll_s))

    def hint(self, *, promote: bool = False) -> None:
        """There may be work; with `promote`, a named queue may move on."""
        self._promote_next = self._promote_next or promote
        self._pacer.wake()

    def job_ended(self, job: RunningJob) -> None:
        if job.is_queued or job.is_isolated:
            self.hint(promote=job.is_queued)

    def slot_freed(self) -> None:
        if self._is_crowded and self._has_room:
            self._pacer.wake()

    def job_abandoned(self, job: RunningJob) -> None:
        self._actors.abandon(self._jobs_nursery, job)

    def drain_withdrawn(self) -> None:
        self.hint(promote=True)

    @property
    def may_claim(self) -> bool:
        """It can claim: sure of itself, its last claim succeeded, and no drain was requested."""
        is_held_up = self._is_failing or self._actors.committer.is_held_up
        return self._self_fence.is_sure and not is_held_up and not self._running.is_drain_requested

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        try:
            await self._run()
        finally:
            # What has been claimed counts among the running jobs before the intake is closed.
            with trio.CancelScope(shield=True):
                await self._all_started.wait()

    async def _run(self) -> None:
        while True:
            began, self._claimed_count = trio.current_time(), 0
            try:
                pause_s = await self.tick()
            except UnavailableError as error:
                self._report(began, error)
                self._promote_next = self._is_failing = True
                self._doubted()
                # Hints do not cut the pause short: there may be many.
                await trio.sleep(self._backoff.failed(_log, "claim failed", error))
                continue
            except Exception as error:
                self._is_failing = True
                self._report(began, error)
                raise
            self._report(began)
            self._is_failing = False
            self._backoff.succeeded()
            if pause_s > 0:
                woken = await self._pacer.wait(pause_s)
                self._promote_next = self._promote_next or not woken
            else:
                await trio.lowlevel.checkpoint()

    def _report(self, began: float, error: Exception | None = None) -> None:
        self._on_run(
            Run(
                name=DISPATCH,
                longest_s=self._poll_s,
                started_at=began,
                duration_s=trio.current_time() - began,
                items=self._claimed_count,
                is_skipped=False,
                error=error,
            )
        )

    async def tick(self) -> float:
        """Claim one batch and start its actors; return how long to wait for the next one."""
        if self._is_barred():
            return self._poll_s
        now, lost_count = trio.current_time(), self._running.lost_count
        if self._orphan_scan.is_due(now, lost_count=lost_count):
            self._orphan_scan.begun(now, lost_count=lost_count)
            await self._all_started.wait()  # else they would look like orphans
            await self.release_orphans()
        if self._running.is_drain_requested or self.claims_left <= 0:
            return self._poll_s
        room = min(self._ramp.room(trio.current_time()), self.claims_left)
        if room <= 0:
            return DOUBLES_IN_S / 2
        await self._promote()
        await self._claim_bulk()
        limit = int(min(self._free_slots, BATCH_MAX, room))
        if limit <= 0:
            self._is_crowded = True
            return CROWDED_POLL_S
        count = await self._claim(self._types, limit)
        if not count and not self._promote_next and not self._bulk_next:
            self.found_nothing_at = trio.current_time()
        if count < limit:
            self._is_crowded = False
            return self._idle_s()
        self._is_crowded = True
        return 0.0 if self._has_room else CROWDED_POLL_S

    async def _claim(self, types: Sequence[str], limit: int) -> int:
        """Claim up to `limit` jobs and start their actors; return how many came."""
        claims = await self._claimed(types, limit)
        self._ramp.claimed(len(claims))
        self._claimed_count += len(claims)
        self.claims_left -= len(claims)
        if claims:
            self.claimed_at = trio.current_time()
        self._actors.metrics.claimed(claims)
        # The server chooses the next batch while this one starts; no third one waits.
        with trio.CancelScope(shield=True):
            await self._all_started.wait()
        isolated = [self._actors.isolates(claim) for claim in claims]
        self._unstarted_count, self._unstarted_isolated_count = len(claims), sum(isolated)
        self._all_started = trio.Event()
        if len(claims) < BATCH_AHEAD:
            await self._start(claims, isolated)
        else:
            self._jobs_nursery.start_soon(self._start, claims, isolated)
        return len(claims)

    async def _claimed(self, types: Sequence[str], limit: int) -> list[Claim]:
        isolated_types = () if types == (BULK,) else self._actors.registry.isolated_names
        crash_point("before_claim")
        if self._only is None:
            claims = await self._port(
                tasks.claim,
                pod_id=self._pod_id,
                types=types,
                limit=limit,
                config_id=self._config_id,
                isolated=self._free_isolated_slots,
                isolated_types=isolated_types,
                tools=self._tools,
            )
        else:
            claims = await self._port(
                tasks.claim_one,
                pod_id=self._pod_id,
                job_id=self._only,
                types=(*types, *isolated_types),
                config_id=self._config_id,
                tools=self._tools,
            )
        if claims:
            crash_point("after_claim")
        return claims

    async def _claim_bulk(self) -> None:
        """Fill the slot of bulk operations, after each promote: they are in a named queue."""
        now = trio.current_time()
        if not self._bulk_next or now < self._bulk_not_before or self._running.extra_ids:
            return
        self._bulk_next, self._bulk_not_before = False, now + BULK_APART_S
        await self._claim((BULK,), 1)

    def _is_barred(self) -> bool:
        """Return whether the database stands in the way: afterwards claims begin slowly."""
        if not self._self_fence.is_sure:
            self._doubted()
            return True
        if self._actors.committer.is_held_up:
            self._ramp.broken()
            return True
        return False

    def _doubted(self) -> None:
        self._orphan_scan.doubted(trio.current_time())
        self._ramp.broken()

    @property
    def _free_slots(self) -> int:
        return self._running.free_slots - self._unstarted_count

    @property
    def _free_isolated_slots(self) -> int:
        taken_count = self._running.isolated_count + self._unstarted_isolated_count
        return self._actors.isolated_slots - taken_count

    @property
    def _has_room(self) -> bool:
        return self._free_slots >= min(ROOM_MIN, self._running.slots)

    async def _promote(self) -> None:
        """Make due tasks ready, on request and at every poll, since no notification announces them.

        The cost grows with the queues that move on; promotes take a tenth of the time at most.
        After a full batch more is due: then the next tick promotes again, without a pause.
        """
        now = trio.current_time()
        is_wanted = self._promote_next or now - self._promoted_at >= self._poll_s
        if not is_wanted or now < self._promote_not_before:
            return
        self._promote_next = False
        self._bulk_next = self._has_bulk
        self._promoted_at = now
        crash_point("before_promote")
        count = await self._port(tasks.promote)
        crash_point("after_promote")
        if count >= tasks.PROMOTE_BATCH:
            self._promote_next = True
            return
        took_s = trio.current_time() - now
        self._promote_not_before = trio.current_time() + PROMOTE_REST * took_s

    def _idle_s(self) -> float:
        """Return how long to wait for the next tick when nothing else is ready."""
        due = [self._promote_not_before] if self._promote_next else []
        if self._bulk_next and not self._running.extra_ids:
            due.append(self._bulk_not_before)
        left_s = max(0.0, min(due) - trio.current_time()) if due else self._poll_s
        return min(self._poll_s, left_s)

    async def release_orphans(self) -> None:
        """Release what the pod owns and does not run, so that other pods claim it at once."""
        running_ids = self._running.known_ids
        orphans = await self._port(tasks.orphans, pod_id=self._pod_id, known_ids=running_ids)
        if orphans:
            _log.warning("orphans released", jobs=len(orphans))
            self._running.mark_run()  # the record of those jobs names this pod
            releases = [Release(lease=o, outcome="handed_back", is_counted=False) for o in orphans]
            crash_point("before_orphans")
            await self._port(tasks.release, pod_id=self._pod_id, operations=releases)
            crash_point("after_orphans")

    async def _start(self, claims: list[Claim], isolated: list[bool]) -> None:
        try:
            for begun, (claim, is_isolated) in enumerate(zip(claims, isolated, strict=True)):
                if begun % STARTED_AT_ONCE == STARTED_AT_ONCE - 1:
                    await trio.lowlevel.cancel_shielded_checkpoint()
                self._unstarted_count -= 1
                self._unstarted_isolated_count -= is_isolated
                job = self._running.add(claim, is_isolated=is_isolated)
                self._actors.start(self._jobs_nursery, claim, job)
        finally:
            self._unstarted_count = self._unstarted_isolated_count = 0
            self._all_started.set()


# --- When a pod looks for jobs that it owns and does not run: see `tasks.orphans`.


LATE_S: Final = 15.0
"""No transaction of ours stays open for longer; only its commit may take more."""
APART_S: Final = 30.0
"""Between two scans without doubt: far below the threshold of a sweep, which would find them
too."""


class OrphanScan:
    """Decides when one pod scans, by trio's clock."""

    def __init__(self, *, apart_s: float) -> None:
        """`apart_s`: seconds between two scans while there is doubt; the first one is immediate."""
        self._apart_s = apart_s
        self._is_first = False
        self._scanned_lost_count = 0
        self._until = float("-inf")
        self._scanned_at = float("-inf")

    def doubted(self, now: float) -> None:
        """A call failed, or the pod was not sure of itself."""
        self._is_first = True
        self._until = now + LATE_S

    def is_due(self, now: float, *, lost_count: int) -> bool:
        """Return whether to scan; `lost_count`: attempts ever that ended here unrecorded."""
        apart_s = self._apart_s if now < self._until else APART_S
        is_asked = self._is_first or lost_count != self._scanned_lost_count
        return is_asked or now - self._scanned_at >= apart_s

    def begun(self, now: float, *, lost_count: int) -> None:
        """A scan begins: attempts that end from now on are for the next scan."""
        self._is_first, self._scanned_lost_count, self._scanned_at = False, lost_count, now
