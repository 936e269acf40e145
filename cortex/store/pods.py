"""Pods: which exist, which are alive, and which jobs they own."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.confinement import Confinement
from cortex.domain.drain import DrainPhase, DrainStatus, Liveness, Moved, PodState, TroubleReport
from cortex.domain.job import Lease
from cortex.postgres.database import Database, affected
from cortex.postgres.dedicated import Dedicated
from cortex.store.codes import Code
from cortex.store.rows import row_of

LEASES_MAX: Final = 1_000
"""Read with the list of pods, oldest first, from all locked tasks: in some milliseconds."""
PHASES: Final = tuple(DrainPhase)
_LIVELIEST_FIRST: Final = (PodState.DRAINING, PodState.READY, PodState.DEAD, PodState.STOPPED)


@attrs.frozen(kw_only=True)
class Pod:
    """One run of `cortex up`, as it registers."""

    id: UUID
    lock_key: int
    """Key of its session advisory lock: signed 64 bits."""
    name: str
    version: str
    job_types: tuple[str, ...]
    slots: int
    liveness: Liveness = Liveness.LOCK
    confinement: Confinement = Confinement.NONE
    tools: tuple[str, ...] = ()
    """Names of the tools that it offers to agents."""
    peer_check_s: float = 0.5
    """This and the next three: its settings of these names, by which others judge its silence."""
    heartbeat_s: float = 30.0
    zombie_s: float = 300.0
    sweep_s: float = 60.0
    group_id: UUID | None = None
    """Shared by the workers of one `cortex up --workers`; None for a pod of one process."""
    worker: int | None = None
    """Its number among them, from 1."""
    code: Code | None = None
    """What it runs; stored before it registers."""


@attrs.frozen(kw_only=True)
class Vitals:
    """What a pod reports about itself with each heartbeat."""

    state: str
    loop_lag_ms: float
    rss_bytes: int
    hint_latency_ms: float | None
    drain: DrainStatus | None = None
    """How far its drain is, once it began."""
    trouble: TroubleReport | None = None
    """What its calls suffer from."""
    has_run: bool = True
    """It ran jobs other than upkeep: the record may name it."""
    threads_lost: int = 0
    """Threads that time-outs left behind and that have not ended since."""


@attrs.frozen(kw_only=True)
class Suspect:
    """A pod marked alive although its session does not hold its lock."""

    id: UUID
    name: str
    heartbeat_at: datetime


@attrs.frozen(kw_only=True)
class PodRow:
    """A pod with its leases and connections: the sums and the worst figures of its workers."""

    id: UUID
    """By which people know it: shared by its workers."""
    name: str
    version: str
    """Of Cortex."""
    code_version: str | None
    """The version of the application's code."""
    state: PodState
    """DEAD as soon as its session ended."""
    job_types: list[str]
    tools: list[str]
    slots: int
    running: int
    started_at: datetime
    heartbeat_at: datetime
    ended_at: datetime | None
    liveness: Liveness = attrs.field(converter=Liveness)
    confinement: str | None
    loop_lag_ms: float | None
    rss_bytes: int | None
    hint_latency_ms: float | None
    threads_lost: int
    """Threads that time-outs left behind, at its last heartbeat."""
    drain_requested_at: datetime | None
    drain_requested_by: str | None
    drain_reason: str | None
    draining_at: datetime | None
    phase: DrainPhase | None = attrs.field(converter=attrs.converters.optional(DrainPhase))
    phase_at: datetime | None
    abort_at: datetime | None
    closed_at: datetime | None
    trouble: str | None
    trouble_at: datetime | None
    oldest_lease_at: datetime | None
    longest_claim_at: datetime | None
    silent_after_s: float
    """Seconds without a heartbeat after which it counts as silent, by its own settings."""
    connections: int | None
    """Its sessions in the database; None where the server does not know."""
    workers: int = 1
    """Its processes that live; of an ended pod, all."""
    moved: Moved | None = None
    """See `drains.with_moved`."""
    now: datetime = attrs.field(eq=False)

    @property
    def is_living(self) -> bool:
        """It has not ended, as far as is known."""
        return self.state in {PodState.READY, PodState.DRAINING}

    @property
    def is_leaving(self) -> bool:
        """It hands its jobs back, has done so, or has ended in order."""
        return self.drain_requested_at is not None or self.draining_at is not None


async def register(db: Database | Dedicated, pod: Pod) -> None:
    """Register a pod, with the session that calls this if that holds the pod's lock.

    Repeating it changes nothing but that session. Waits for a takeover of the pod, or raises.
    """
    await db.fetch(
        "pods.register",
        pod.id,
        pod.lock_key,
        pod.name,
        pod.version,
        list(pod.job_types),
        pod.slots,
        pod.liveness.value,
        pod.confinement.value,
        list(pod.tools),
        pod.peer_check_s,
        pod.heartbeat_s,
        pod.zombie_s,
        pod.sweep_s,
        pod.group_id,
        pod.worker,
        None if pod.code is None else pod.code.digest,
    )


@attrs.frozen(kw_only=True)
class LockAttempt:
    """Whether the lock is held now, and if not, whether a login that is not the pod's holds it."""

    is_held: bool
    is_foreign: bool


async def lock(session: Dedicated, lock_key: int, *, pod_id: UUID | None = None) -> LockAttempt:
    """Take the pod's session lock on its own connection, unless another session holds it.

    The row of the pod, if it has one already, names this session from then on.
    """
    (row,) = await session.fetch("pods.lock", lock_key, pod_id)
    return LockAttempt(is_held=row["is_held"], is_foreign=row["is_foreign"])


async def beat(
    session: Dedicated, *, pod_id: UUID, leases: Sequence[Lease], vitals: Vitals
) -> set[UUID]:
    """Write one heartbeat for a pod and all its jobs; return the jobs that it still owns."""
    ordered = sorted(leases, key=lambda lease: lease.job_id)
    rows = await session.fetch(
        "pods.beat",
        pod_id,
        [lease.job_id for lease in ordered],
        [lease.attempt for lease in ordered],
        vitals.state,
        vitals.loop_lag_ms,
        vitals.rss_bytes,
        vitals.hint_latency_ms,
        None if (drain := vitals.drain) is None else drain.phase.value,
        None if drain is None else drain.abort_in_s,
        None if drain is None else drain.closed_in_s,
        None if (report := vitals.trouble) is None else report.trouble.value,
        None if report is None else report.for_s,
        vitals.has_run,
        vitals.threads_lost,
    )
    return affected(rows)


@attrs.frozen(kw_only=True)
class StepReport:
    """The step that a job of a pod has run longest."""

    lease: Lease
    kind: str | None = None
    """None: no step runs long any more."""
    key: str | None = None
    for_s: float = 0.0
    more: int = 0
    """How many other steps run beside it."""


async def report_steps(
    db: Database, *, pod_id: UUID, reports: Sequence[StepReport]
) -> frozenset[UUID]:
    """Note which steps jobs of a pod run, for people who look.

    Returns the jobs of which it was noted: not those whose task was locked.
    """
    rows = await db.fetch(
        "pods.report_steps",
        pod_id,
        [each.lease.job_id for each in reports],
        [each.lease.attempt for each in reports],
        [each.kind for each in reports],
        [each.key for each in reports],
        [each.for_s for each in reports],
        [each.more for each in reports],
    )
    return frozenset(row["id"] for row in rows)


async def leave(db: Database, pod_id: UUID, *, has_run: bool = True) -> bool:
    """Mark a pod as ended in order; False if it still owns jobs, which others then take over.

    `has_run`: it ran jobs other than upkeep, so its record is kept as long as they may be.
    """
    return bool(await db.fetch("pods.leave", pod_id, has_run))


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete pods that ended this long ago and that no record names; return how many."""
    row = await db.fetch_one("pods.forget", kept_s, limit)
    return row["count"] if row else 0


async def without_lock(db: Database, *, caller: UUID, settle_s: float) -> list[Suspect]:
    """Return pods whose lock is free; none within `settle_s` of the server's start."""
    rows = await db.fetch("pods.without_lock", caller, settle_s)
    return [Suspect(**dict(row)) for row in rows]


async def ended_owners(db: Database, *, caller: UUID) -> list[Suspect]:
    """Return pods that ended although they still own jobs."""
    rows = await db.fetch("pods.ended_owners", caller)
    return [Suspect(**dict(row)) for row in rows]


async def retire_silent(db: Database, *, silent_s: float) -> None:
    """Mark pods dead that were silent for this long and own nothing."""
    await db.fetch("pods.retire_silent", silent_s)


async def page(db: Database, *, ended: int = 0) -> list[PodRow]:
    """Return the living pods, then the newest ended ones, with their leases and connections.

    A pod whose session ended is DEAD here at once, before another pod marks it so.
    """
    pods: dict[UUID, dict[int | None, PodRow]] = {}
    for row in await db.fetch("pods.list", ended, LEASES_MAX):
        workers = pods.setdefault(row["shown_id"], {})
        # Of one that was restarted the newest: they come by age.
        workers[row["worker"]] = row_of(
            PodRow,
            row,
            id=row["shown_id"],
            workers=1,
            running=row["running_now"],
            state=PodState.DEAD if row["is_lost"] else row["state"],
            moved=None,
        )
    return [_joined(list(workers.values())) for workers in pods.values()]


def _joined(rows: Sequence[PodRow]) -> PodRow:
    """Return the workers of one pod as one row; dead ones do not count beside living ones."""
    rows = [row for row in rows if row.is_living] or rows
    if len(rows) == 1:
        return rows[0]
    states = {row.state for row in rows}
    requested = next((row for row in rows if row.drain_requested_at is not None), rows[0])
    ailing = min(rows, key=lambda row: row.trouble_at or row.now)
    # The drain of the whole is as far as that of the worker that is least far.
    slowest = min(rows, key=lambda row: PHASES.index(row.phase) if row.phase else len(PHASES))
    hints = [row.hint_latency_ms for row in rows if row.hint_latency_ms is not None]
    return attrs.evolve(
        rows[0],
        workers=len(rows),
        state=next(each for each in _LIVELIEST_FIRST if each in states),
        slots=sum(row.slots for row in rows),
        running=sum(row.running for row in rows),
        started_at=min(row.started_at for row in rows),
        heartbeat_at=min(row.heartbeat_at for row in rows),
        ended_at=_last(row.ended_at for row in rows),
        loop_lag_ms=_last(row.loop_lag_ms for row in rows),
        rss_bytes=sum(row.rss_bytes or 0 for row in rows) or None,
        threads_lost=sum(row.threads_lost for row in rows),
        hint_latency_ms=max(hints) if len(hints) == len(rows) else None,
        drain_requested_at=requested.drain_requested_at,
        drain_requested_by=requested.drain_requested_by,
        drain_reason=requested.drain_reason,
        draining_at=_first(row.draining_at for row in rows),
        phase=slowest.phase,
        phase_at=slowest.phase_at,
        abort_at=_last(row.abort_at for row in rows),
        closed_at=_last(row.closed_at for row in rows),
        trouble=ailing.trouble,
        trouble_at=ailing.trouble_at,
        oldest_lease_at=_first(row.oldest_lease_at for row in rows),
        longest_claim_at=_first(row.longest_claim_at for row in rows),
    )


def _first(values: Iterable[Any]) -> Any:
    """Return the least of those that there are, or None."""
    return min((value for value in values if value is not None), default=None)


def _last(values: Iterable[Any]) -> Any:
    """Return the greatest of those that there are, or None."""
    return max((value for value in values if value is not None), default=None)


async def live_types(db: Database) -> list[str]:
    """Return the job types that ready pods can run."""
    return [row["name"] for row in await db.fetch("pods.live_types")]


async def probe(db: Database, *, channel: str) -> None:
    """Notify a channel, to measure whether notifications arrive."""
    await db.fetch("pods.probe", channel, "")
