"""Schedules: declaring, changing and reading them. `store.schedule_ticks` fires them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.canonical import canonical
from cortex.domain.errors import ConflictError, NotFoundError, UsageError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import utc_time
from cortex.domain.schedules.cron import Cron
from cortex.domain.schedules.schedule import Missed, Origin, Outcome, Overlap, Pause, Schedule
from cortex.postgres.database import Connection, Database, Record
from cortex.store.rows import row_of, rows_of
from cortex.store.tenants import Kind, require_own

PAST_RUNS: Final = 20
"""How many ended jobs of a schedule an estimate is made from."""


@attrs.frozen(kw_only=True)
class ScheduleRow:
    """A schedule as it stands, with its last instant."""

    name: str
    cron: str
    zone: str
    type: str
    arguments: dict[str, Any]
    agent: str | None
    tenant: str
    backfill_s: int
    overlap: Overlap
    jitter_s: int
    instant_as: str | None
    origin: Origin
    next_at: datetime | None
    due_at: datetime | None
    problem: str | None
    """Why it could not be evaluated."""
    missed_count: int
    missed_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    changed_by: str
    changed_at: datetime
    reason: str
    created_at: datetime
    is_served: bool
    """A living pod can run its jobs."""
    is_declared: bool
    """By the code of a living pod; true for one that comes from elsewhere."""
    has_missed: bool
    """An instant within the last hour or so; never of a built-in one, for which pods make up."""
    queued: int
    """Instants that wait for an earlier job."""
    last_instant: datetime | None
    last_outcome: Outcome | None
    last_job_id: UUID | None
    last_error: str | None
    last_status: JobStatus | None
    now: datetime = attrs.field(eq=False)

    @property
    def schedule(self) -> Schedule:
        """What it does, as a value."""
        return schedule_of(
            {each: getattr(self, each) for each in (*_SAME, "cron", "zone", "arguments")}
        )


@attrs.frozen(kw_only=True)
class InstantRow:
    instant: datetime
    outcome: Outcome
    job_id: UUID | None
    is_manual: bool
    """A person triggered it."""
    is_made_up: bool
    """It was due in an outage, or came while such instants were made up for."""
    error: str | None
    reason: str | None
    """Why it was skipped, missed or made up for; None: it came on time."""
    at: datetime
    status: JobStatus | None
    """Of its job; None if there is none, or it was deleted."""
    finished_at: datetime | None


@attrs.frozen(kw_only=True)
class PastRuns:
    """What the last ended jobs of a schedule took."""

    runs: int
    completed: int
    mean_s: float | None
    mean_usd: Annotated[float | None, float]


@attrs.frozen(kw_only=True)
class ScheduleChange:
    """The effect of declaring a schedule."""

    name: str
    change: str
    """created, updated or unchanged."""
    next_at: datetime | None


_SAME = (
    "name",
    "type",
    "agent",
    "tenant",
    "backfill_s",
    "overlap",
    "jitter_s",
    "instant_as",
)
"""Fields that are called the same in the value and in the table."""


def schedule_of(row: Any) -> Schedule:
    """Return the value that a row of `cortex.schedule` stores; it was checked when written."""
    arguments = row["arguments"]
    return Schedule(
        **{each: row[each] for each in _SAME if each != "overlap"},
        overlap=Overlap(row["overlap"]),
        cron=Cron(row["cron"], row["zone"]),
        arguments=orjson.loads(arguments) if isinstance(arguments, str) else arguments,
    )


async def apply(
    db: Database,
    schedules: Sequence[Schedule],
    *,
    by: str,
    reason: str,
    credential: str | None = None,
) -> list[ScheduleChange]:
    """Create or replace schedules of files, all or none.

    Raises `NotFoundError` for an unknown agent, and `ConflictError` for a name that the migrations
    or code declare.
    """

    async def work(connection: Connection) -> list[ScheduleChange]:
        inside = db.bound(connection)
        now = await _lock_names(inside)
        changes = []
        for each in sorted(schedules, key=lambda one: one.name):
            await _refuse_unknown_agent(inside, each)
            changed = _Change(origin=Origin.FILE, by=by, credential=credential, reason=reason)
            changes.append(await _put(inside, each, now=now, change=changed))
        return changes

    return await db.transact(work)


async def declare(
    db: Database, schedules: Sequence[Schedule], *, pod_id: UUID, pod: str
) -> list[ScheduleChange]:
    """Create or replace the schedules that the code of a pod declares."""

    async def work(connection: Connection) -> list[ScheduleChange]:
        inside = db.bound(connection)
        now = await _lock_names(inside)
        declared = _Change(origin=Origin.CODE, by=pod, credential=None, reason="declared by code")
        changes = [
            await _put(inside, each, now=now, change=declared)
            for each in sorted(schedules, key=lambda one: one.name)
        ]
        await inside.fetch("schedules.declare", pod_id, [each.name for each in schedules])
        return changes

    return await db.transact(work)


async def pause(db: Database, name: str, *, by: str, reason: str) -> None:
    """Pause a schedule. Raises `NotFoundError`, and `ConflictError` if it is paused."""
    await require_own(db, Kind.SCHEDULE, [name])
    row = await db.fetch_one("schedules.pause", name, by, reason)
    if row is None:
        raise _no_such_schedule(name)
    if row["was_paused"]:
        raise ConflictError(f"schedule {name!r} is paused already")


async def resume(db: Database, name: str, *, by: str, reason: str) -> None:
    """Resume a schedule; what fell into the pause does not fire, what was due before it does.

    Raises `NotFoundError`, and `ConflictError` if it is not paused.
    """
    await require_own(db, Kind.SCHEDULE, [name])

    async def work(connection: Connection) -> None:
        inside = db.bound(connection)
        row = await inside.fetch_one("schedules.hold", name)
        if row is None:
            raise _no_such_schedule(name)
        if row["paused_at"] is None:
            raise ConflictError(f"schedule {name!r} is not paused")
        schedule, next_at = schedule_of(row), row["next_at"]
        pause = Pause(row["paused_at"], row["now"])
        plan = None if next_at is None else schedule.resumed(next_at, pause)
        left = None if plan is None else plan.next_at
        missed = None if plan is None else plan.missed
        await inside.fetch(
            "schedules.resume",
            name,
            left,
            None if left is None else schedule.due_at(left),
            by,
            reason,
            None if missed is None else missed.first,
            None if missed is None else _fell_into_pause(missed, row),
            left is not None and schedule.due_at(left) <= pause.since,
        )

    await db.transact(work)


async def trigger(
    db: Database, name: str, *, by: str, reason: str, credential: str | None = None
) -> UUID:
    """Submit a job of a schedule now, beside its instants; return it.

    Raises `NotFoundError`, and `UsageError` if the job cannot be submitted.
    """
    await require_own(db, Kind.SCHEDULE, [name])
    row = await db.fetch_one("schedules.trigger", name, by, reason, credential)
    if row is None:
        raise _no_such_schedule(name)
    if row["job_id"] is None:
        raise UsageError(f"schedule {name!r}: {row['error']}")
    job_id: UUID = row["job_id"]
    return job_id


async def remove(db: Database, name: str, *, by: str, reason: str) -> None:
    """Remove a schedule; its jobs stay.

    Raises `NotFoundError`, and `ConflictError` for a built-in one, or one that code declares.
    """
    await require_own(db, Kind.SCHEDULE, [name])
    row = await db.fetch_one("schedules.remove", name, by, reason)
    if row is None:
        raise _no_such_schedule(name)
    pause = f"pause it: cortex schedules pause {name} --reason TEXT"
    if row["origin"] == Origin.BUILT_IN:
        raise ConflictError(f"schedule {name!r} is built in", hint=pause)
    if row["is_declared"]:
        raise ConflictError(f"schedule {name!r} is declared by code of a living pod", hint=pause)


async def page(
    db: Database, *, after: str = "", limit: int = 100, tenant: str | None = None
) -> list[ScheduleRow]:
    """Return schedules by name, of one tenant if it is given."""
    return rows_of(
        ScheduleRow, await db.fetch("schedules.list", after, limit, None, tenant or db.tenant)
    )


async def show(db: Database, name: str) -> ScheduleRow:
    """Return one schedule. Raises `NotFoundError`."""
    row = await db.fetch_one("schedules.list", "", 1, name, db.tenant)
    if row is None:
        raise _no_such_schedule(name)
    return row_of(ScheduleRow, row)


async def instants(
    db: Database, name: str, *, before: datetime | None = None, limit: int = 20
) -> list[InstantRow]:
    """Return what became of a schedule's last instants, the newest first."""
    return rows_of(InstantRow, await db.fetch("schedules.instants", name, before, limit))


async def past_runs(db: Database, name: str) -> PastRuns:
    """Return what the last ended jobs of a schedule took."""
    row = await db.fetch_one("schedules.past_runs", name, PAST_RUNS)
    if row is None:
        raise AssertionError("an aggregate returns one row")
    return row_of(PastRuns, row)


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete instants that were dealt with this many seconds ago; return how many."""
    row = await db.fetch_one("schedules.forget", kept_s, limit)
    return row["count"] if row else 0


async def _lock_names(inside: Database) -> datetime:
    row = await inside.fetch_one("schedules.lock_names")
    if row is None:
        raise AssertionError("a statement without FROM returns one row")
    now: datetime = row["now"]
    return now


@attrs.frozen(kw_only=True)
class _Change:
    """Where a declaration comes from, and who made it."""

    origin: Origin
    by: str
    credential: str | None
    reason: str


async def _put(
    inside: Database, schedule: Schedule, *, now: datetime, change: _Change
) -> ScheduleChange:
    row = await inside.fetch_one("schedules.hold", schedule.name)
    old = None if row is None else schedule_of(row)
    if row is not None:
        _refuse_other_origin(schedule.name, Origin(row["origin"]), change.origin)
    wanted = attrs.evolve(schedule, tenant=schedule.tenant or "default")
    if row is not None and old == wanted and row["origin"] == change.origin:
        return ScheduleChange(name=schedule.name, change="unchanged", next_at=row["next_at"])
    is_same_time = old is not None and (old.cron, old.jitter_s) == (wanted.cron, wanted.jitter_s)
    times = (
        (row["next_at"], row["due_at"])
        if row is not None and is_same_time
        else _times(wanted, after=now)
    )
    await inside.fetch(
        "schedules.put",
        wanted.name,
        wanted.cron.expression,
        wanted.cron.zone,
        wanted.type,
        canonical(dict(wanted.arguments), what="arguments"),
        wanted.agent,
        wanted.tenant,
        wanted.backfill_s,
        wanted.overlap.value,
        wanted.jitter_s,
        wanted.instant_as,
        change.origin.value,
        *times,
        change.by,
        change.reason,
        change.credential,
    )
    return ScheduleChange(
        name=wanted.name, change="created" if row is None else "updated", next_at=times[0]
    )


def _refuse_other_origin(name: str, stored: Origin, wanted: Origin) -> None:
    """Code may take over what a file declared; nothing else changes hands."""
    if stored is Origin.BUILT_IN:
        raise ConflictError(f"schedule {name!r} is built in", hint="choose another name")
    if stored is Origin.CODE and wanted is Origin.FILE:
        raise ConflictError(
            f"schedule {name!r} is declared by code",
            hint="change it there, or choose another name",
        )


async def _refuse_unknown_agent(inside: Database, schedule: Schedule) -> None:
    if schedule.agent is None:
        return
    if not await inside.fetch("specs.newest_agent", schedule.agent):
        raise NotFoundError(
            f"schedule {schedule.name!r}: agent {schedule.agent!r} does not exist",
            hint="apply it first: cortex agents apply FILE",
        )


def _times(schedule: Schedule, *, after: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the next instant, and when its job is submitted."""
    instant = schedule.next_after(after)
    return instant, None if instant is None else schedule.due_at(instant)


def missed_text(missed: Missed) -> str:
    """Return how many instants were missed: `57 instants up to 2026-06-01T12:59:00Z`."""
    if missed.count == 1:
        return f"the instant {utc_time(missed.first)}"
    more = "more than " if missed.is_more else ""
    return f"{more}{missed.count:,} instants up to {utc_time(missed.last)}"


def _fell_into_pause(missed: Missed, row: Record) -> str:
    why = f": {row['pause_reason']}" if row["pause_reason"] else ""
    return f"{missed_text(missed)} fell into the pause by {row['paused_by']}{why}"


def _no_such_schedule(name: str) -> NotFoundError:
    return NotFoundError(f"schedule {name!r} does not exist", hint="list them: cortex schedules ls")
