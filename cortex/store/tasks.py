"""Tasks of the worker queue: claiming, releasing, and taking them from dead or silent pods."""

import random
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

import attrs
import orjson

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.job import Claim, Lease, Misfit, Release, Suspend
from cortex.domain.phrases import to_plain
from cortex.domain.timeouts import JOB_EXPIRY_S
from cortex.postgres.database import Connection, Database, Record, affected
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of

PROMOTE_BATCH = 1000
WALK_BATCH = 200

Ended = TypeVar("Ended", Release, Suspend, Misfit)


async def promote(db: Database) -> int:
    """Make due tasks and the next of idle named queues ready; return how many.

    At most `PROMOTE_BATCH` of each; a full batch: more may be due.
    """
    row = await db.fetch_one("tasks.promote", PROMOTE_BATCH)
    return row["count"] if row else 0


@attrs.frozen
class QueueWalk:
    """`latest`: the last queue looked at; None after the last of all."""

    latest: str | None
    named_count: int


async def walk_queues(db: Database, *, after: str) -> QueueWalk:
    """Look at the next waiting queues, and name those that nothing has moved on.

    Whatever lets a queue move on names it for `promote` in the same transaction. This finds the
    queues of a change that did not, at most `WALK_BATCH` of them.
    """
    row = await db.fetch_one("tasks.walk_queues", after, WALK_BATCH)
    if row is None:
        return QueueWalk(latest=None, named_count=0)
    return QueueWalk(latest=row["latest"], named_count=row["count"])


async def claim(
    db: Database,
    *,
    pod_id: UUID,
    types: Sequence[str],
    limit: int,
    config_id: int | None = None,
    isolated: int = 1,
    isolated_types: Sequence[str] = (),
    tools: Sequence[str] = (),
) -> list[Claim]:
    """Give up to `limit` ready tasks to a pod, each under a new attempt.

    Jobs that start keep `config_id`. `isolated`: how many of them may run in their own processes:
    suspects and those of `isolated_types`, which are not in `types`. Jobs of agents with tools
    outside `tools` are left to other pods.

    After `OutcomeUnknownError` the pod may own jobs that it does not know: see `orphans`.
    """
    rows = await db.fetch(
        *("tasks.claim", pod_id, list(types), limit, config_id, isolated),
        *(list(tools), list(isolated_types)),
    )
    return [_claim(row) for row in rows]


async def claim_one(
    db: Database,
    *,
    pod_id: UUID,
    job_id: UUID,
    types: Sequence[str],
    config_id: int | None = None,
    tools: Sequence[str] = (),
) -> list[Claim]:
    """Give the ready task of one job to a pod, as `claim` does; return none while it is not."""
    rows = await db.fetch("tasks.claim_one", pod_id, job_id, list(types), config_id, list(tools))
    return [_claim(row) for row in rows]


async def orphans(db: Database, *, pod_id: UUID, known_ids: Sequence[UUID]) -> list[Lease]:
    """Return what a pod owns beyond its known jobs.

    Release them; never run them under this attempt, which may have run here before.
    """
    rows = await db.fetch("tasks.orphans", pod_id, list(known_ids))
    return [Lease(row["id"], row["attempt"]) for row in rows]


async def locked(db: Database, *, job_ids: Sequence[UUID]) -> set[UUID]:
    """Return which of these jobs cannot be written now: a row of theirs is locked elsewhere."""
    return affected(await db.fetch("tasks.locked", list(job_ids)))


async def release(db: Database, *, pod_id: UUID, operations: Sequence[Release]) -> set[UUID]:
    """End attempts, not their jobs; return the released: the others lost their lease."""
    ordered = _ordered(operations)
    columns: tuple[Sequence[object], ...] = (
        [0 if op.is_counted else 1 for op in ordered],
        [op.delay_s for op in ordered],
        [op.outcome for op in ordered],
        *_failures(ordered),
    )
    return await _hold_and_end(db, "tasks.release", pod_id, ordered, columns)


async def misfit(
    db: Database, *, pod_id: UUID, operations: Sequence[Misfit], code_wait_s: float
) -> set[UUID]:
    """Hand jobs back that do not fit the pod's code; return those: the others lost their lease.

    Only pods of other code claim them. A job that none has taken `code_wait_s` after the first such
    hand-back fails: see `fail_unfit`.
    """
    ordered = _ordered(operations)
    columns: tuple[Sequence[object] | float, ...] = (
        [op.kind for op in ordered],
        [op.error for op in ordered],
        code_wait_s,
    )
    return await _hold_and_end(db, "tasks.misfit", pod_id, ordered, columns)


async def forget_unfit(db: Database) -> int:
    """Forget which tasks some code cannot take, once no task is named so; return how many kinds."""
    return len(await db.fetch("tasks.forget_unfit"))


async def suspend(db: Database, *, pod_id: UUID, operations: Sequence[Suspend]) -> set[UUID]:
    """End attempts and tasks, not jobs; return the suspended: the others lost their lease."""
    ordered = _ordered(operations)
    columns: tuple[Sequence[object], ...] = (
        [op.delay_s for op in ordered],
        [op.is_counted for op in ordered],
        [op.waiting_on for op in ordered],
        [op.is_rate_limit for op in ordered],
        *_failures(ordered),
        [op.is_own_failure for op in ordered],
        [_requests(op) for op in ordered],
        [op.is_broken_answer for op in ordered],
    )
    return await _hold_and_end(db, "tasks.suspend", pod_id, ordered, columns)


def _requests(op: Suspend) -> str | None:
    """Return what people must decide, and what else wakes the job; None in nearly all cases."""
    asked: dict[str, Any] = {}
    if op.requests or op.awaited or op.unknown:
        asked = {
            "requests": [_request(request) for request in op.requests],
            "awaited": [str(approval_id) for approval_id in op.awaited],
            "unknown": [{"id": str(effect.id), "why": effect.why} for effect in op.unknown],
        }
    if op.waits:
        asked["waits"] = [wait.to_json() for wait in op.waits]
    return orjson.dumps(asked).decode() if asked else None


def _request(request: ApprovalRequest) -> dict[str, Any]:
    plain = attrs.asdict(request, recurse=False)
    return {**plain, "digest": "\\x" + request.digest.hex(), "brief": request.brief}


def _ordered(operations: Sequence[Ended]) -> list[Ended]:
    return sorted(operations, key=lambda op: op.lease.job_id)


def _failures(ordered: Sequence[Release | Suspend]) -> tuple[list[str | None], ...]:
    """Return what is recorded of each attempt's failure, one list per column."""
    return (
        [op.error for op in ordered],
        [op.code for op in ordered],
        [op.error_class for op in ordered],
        [op.error_source for op in ordered],
        [op.fact for op in ordered],
    )


async def _hold_and_end(
    db: Database,
    query: str,
    pod_id: UUID,
    ordered: Sequence[Release | Suspend | Misfit],
    columns: Sequence[Sequence[object] | float],
) -> set[UUID]:
    """Run a statement that ends attempts while their tasks are held; return the jobs it ended."""
    ids = [op.lease.job_id for op in ordered]
    attempts = [op.lease.attempt for op in ordered]

    async def hold_and_end(connection: Connection) -> list[Record]:
        # Only a statement that begins after the lock sees a cancellation that held it.
        await connection.fetch(sql("tasks.hold"), pod_id, ids)
        return await connection.fetch(sql(query), pod_id, ids, attempts, *columns)

    return affected(await db.transact(hold_and_end))


@attrs.frozen(kw_only=True)
class Takeover:
    """What was taken from a dead pod."""

    is_dead: bool
    """It had no session at this third poll; if it had one, nothing was changed."""
    is_done: bool
    """Nothing is left to take, and the pod is marked dead."""
    freed_count: int
    cancelled_count: int
    """A person had requested their cancellation."""

    @property
    def count(self) -> int:
        return self.freed_count + self.cancelled_count


async def take_over(
    db: Database,
    *,
    pod_id: UUID,
    deaths_max: int,
    limit: int,
    heartbeat_at: datetime | None = None,
) -> Takeover:
    """Release a dead pod's jobs for others, without counting the attempt against them.

    Does nothing if it has sent a heartbeat after `heartbeat_at`.
    """
    row = await db.fetch_one("tasks.take_over", pod_id, deaths_max, limit, heartbeat_at)
    if row is None:
        raise AssertionError("tasks.take_over always returns one row")
    return Takeover(
        is_dead=row["is_dead"],
        is_done=row["is_done"],
        freed_count=row["freed_count"],
        cancelled_count=row["cancelled_count"],
    )


@attrs.frozen(kw_only=True)
class Swept:
    """What was taken from silent pods."""

    is_skipped: bool = False
    """Another process was doing it."""
    retried_count: int = 0
    failed_count: int = 0
    """Their retries were spent."""
    cancelled_count: int = 0
    """A person had requested their cancellation."""

    @property
    def count(self) -> int:
        return self.retried_count + self.failed_count + self.cancelled_count


async def sweep(
    db: Database, *, silent_s: float, limit: int, rng: random.Random, every_s: float = 0.0
) -> Swept:
    """Take up to `limit` jobs, oldest first, whose pod has been silent for this long.

    Takes none if any pod has swept within `every_s`, or the server has not served for `silent_s`.
    """
    chances = [rng.random() for _ in range(limit)]
    row = await db.fetch_one("tasks.sweep", silent_s, every_s, chances)
    if row is None:
        raise AssertionError("tasks.sweep always returns one row")
    return Swept(
        is_skipped=row["is_skipped"],
        retried_count=row["retried_count"],
        failed_count=row["failed_count"],
        cancelled_count=row["cancelled_count"],
    )


@attrs.frozen(kw_only=True)
class LockHolder:
    """The session that holds a row."""

    pid: int
    application: str | None
    user: str | None
    client: str | None
    state: str | None
    since: datetime | None


@attrs.frozen(kw_only=True)
class Blocked:
    """A job of a lost pod that cannot be taken, since another session has locked its rows."""

    job_id: UUID
    pod: str | None
    """The pod that lost it, for people."""
    heartbeat_at: datetime
    silent_s: float
    holder: LockHolder | None
    """The session in the way; None if unknown."""

    @property
    def held_by(self) -> str:
        """That session, by its process id in Postgres."""
        return "process unknown" if self.holder is None else f"process {self.holder.pid}"


async def has_work(db: Database) -> bool:
    """Return whether a pod may have something to do: tasks that are due, or run in other pods.

    Those of a pod that was killed are among the latter.
    """
    row = await db.fetch_one("tasks.has_work")
    return bool(row and row["has_work"])


async def is_watched(db: Database, *, gap_s: float) -> bool:
    """Note a check by a process without a pod; return whether such checks have come for `gap_s`.

    None of them may have come later than `gap_s` after the one before.
    """
    row = await db.fetch_one("tasks.is_watched", gap_s)
    return bool(row and row["is_steady"])


async def expire(db: Database, *, limit: int, every_s: float) -> int:
    """Fail jobs that still run long after their timeout; return how many.

    Does nothing within `every_s` seconds of another pod's turn. Their owners can no longer write to
    them.
    """
    row = await db.fetch_one("tasks.expire", JOB_EXPIRY_S, every_s, limit)
    return row["count"] if row else 0


async def blocked(
    db: Database, *, silent_s: float, overdue_s: float, limit: int = 100
) -> list[Blocked]:
    """Return jobs that should have been swept or taken over, but are locked.

    `silent_s` is the threshold of a sweep; jobs of a dead pod are overdue after `overdue_s`.
    """
    rows = await db.fetch("tasks.blocked", silent_s, overdue_s, limit)
    return rows_of(Blocked, rows)


async def record_blocked(
    db: Database,
    *,
    pod_id: UUID | None,
    blocked_jobs: Sequence[Blocked],
    for_s: float,
    again_s: float,
) -> bool:
    """Record that such jobs stay out of reach, unless that was done within `again_s`."""
    oldest = blocked_jobs[0]
    data = {
        "jobs": [str(each.job_id) for each in blocked_jobs[:10]],
        "count": len(blocked_jobs),
        "for_s": round(for_s),
        "heartbeat_at": oldest.heartbeat_at,
        "holder": to_plain(oldest.holder),
    }
    details = orjson.dumps(data).decode()
    return bool(await db.fetch("tasks.record_blocked", pod_id, oldest.held_by, details, again_s))


_COLUMNS = tuple(each.name for each in attrs.fields(Claim) if each.name != "lease")
_values = itemgetter(*_COLUMNS)


def _claim(row: Record) -> Claim:
    """The columns of a claim have the names of its fields, which are made in their order."""
    return Claim(Lease(row["id"], row["attempt"]), *_values(row))
