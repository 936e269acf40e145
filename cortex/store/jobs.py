"""Jobs: submitting, ending, cancelling and reading them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import attrs
import orjson

from cortex.domain.budget import OwnBudget
from cortex.domain.canonical import is_deep
from cortex.domain.errors import (
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from cortex.domain.job import Finish, JobStatus, RunningStep, Submission, running_step_of
from cortex.domain.policy import JobPolicy, hard_timeout_s
from cortex.domain.published import JobProgress
from cortex.domain.queueing.submit_rules import SubmitRule, Submitted, arguments_of
from cortex.domain.waiting import Awaited, awaited_of
from cortex.postgres.database import Connection, Database, affected
from cortex.store.lost_replies import repeat_if_lost
from cortex.store.references import by_name
from cortex.store.rows import from_json, row_of, rows_of, unless_all_null

SUBMIT_BATCH = 1000
CANCEL_TRIES = 10
"""A job gets a task while it is being cancelled: rare once, several times unlikely."""


def payload_of(text: str | None) -> Any:
    """Return a payload: any caller of `submit_job` wrote it, and Postgres accepts more than we do.

    It stays text when it holds a number or a nesting that we cannot represent.
    """
    if text is None or is_deep(text):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


AwaitedNow: TypeAlias = Annotated[Awaited | None, lambda text: awaited_of(orjson.loads(text))]

RunningStepNow: TypeAlias = Annotated[
    RunningStep | None, lambda text: running_step_of(orjson.loads(text))
]


@attrs.frozen(kw_only=True)
class JobRow:
    """The columns that every list and page of jobs needs."""

    id: UUID
    type: str
    status: JobStatus
    attempt: int
    retry_count: int
    max_retries: int
    checkpoint: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    next_retry_at: datetime | None
    heartbeat_at: datetime | None
    run_at: datetime
    cancel_requested_at: datetime | None
    cancelled_by: str | None
    error_message: str | None
    error_code: str | None
    waiting_on: str | None
    last_error: str | None
    """Of the last attempt of a job that waits for a person."""
    awaited: AwaitedNow
    progress: JobProgress | None
    """How far it has come, as its code has said."""
    agent: str | None
    pod: str | None
    silent_after_s: float | None
    """From then on its pod counts as silent; None: the pod has no row."""
    zombie_s: float | None
    """After a silence of this length its pod loses it."""
    now: datetime = attrs.field(eq=False)
    why: str | None
    """Why it does not run, in a few words, if the caller requested it."""


@attrs.frozen(kw_only=True)
class ListedJob(JobRow):
    tenant: str
    queue_name: str | None
    tags: tuple[str, ...] | None
    due_by: datetime | None = None

    @property
    def is_late(self) -> bool:
        """Whether it had not ended by its deadline."""
        return self.due_by is not None and (self.finished_at or self.now) > self.due_by


@attrs.frozen(kw_only=True)
class ShownJob(ListedJob):
    """A job in full."""

    agent_id: UUID | None
    agent_version: int | None
    worker_attempts: int
    attempts_spent: int | None
    pod_deaths: int
    timeout_s: int
    priority: int
    pod_id: UUID | None
    code_version: str | None
    """The code of its pod."""
    running_step: RunningStepNow
    """None: no step runs long."""
    task_state: str | None
    task_run_at: datetime | None
    suspended_at: datetime | None
    waited_s: float
    rate_limit_count: int
    config_id: int | None
    origin_id: UUID | None
    lineage_id: UUID | None
    parent_id: UUID | None
    """The job that submitted it."""
    budgets: tuple[OwnBudget, ...]
    """Budgets of the job itself: the share that its parent gave it, and what people set."""
    has_children: bool | None
    error_class: str | None
    error_source: str | None
    updated_at: datetime
    cancel_reason: str | None
    submitted_by: str | None
    submitted_with: str | None
    traceparent: str | None
    trace_id: str
    schedule: str | None
    """The schedule that submitted it, and the instant that it is for."""
    scheduled_for: datetime | None
    schedule_reason: str | None
    """Why that instant is made up for; None: it came on time."""
    cache_saved_usd: Decimal | None
    """What the prompt cache saved; None where it was not used, or no price is known."""
    payload: Annotated[Any, payload_of]
    result: Any
    state: Annotated[dict[str, Any] | None, from_json]
    """What its code has published; None: nothing."""


@attrs.frozen(kw_only=True)
class Transition:
    """A job went to another state."""

    id: int
    previous: JobStatus | None
    new: JobStatus
    attempt: int
    at: datetime
    metadata: dict[str, Any]
    pod: str | None
    code_version: str | None
    """The code of that pod."""


@attrs.frozen(kw_only=True)
class EndedAttempt:
    """An attempt that ended before its job did."""

    attempt: int
    outcome: str
    """`failed`, `retry`, `suspended`, `handed_back`, `pod_died`, `process_died` or
    `lease_expired`."""
    ended_at: datetime
    due_at: datetime | None
    error: str | None
    error_class: str | None
    error_code: str | None
    error_source: str | None
    retry_count: int | None
    pod: str | None
    code_version: str | None
    """The code of that pod."""


@attrs.frozen(kw_only=True)
class StepRow:
    """A committed step, without its output."""

    seq: int
    attempt: int
    kind: str
    key: str
    started_at: datetime
    finished_at: datetime
    cost_usd: Decimal | None
    usage: dict[str, Any] | None


@attrs.frozen(kw_only=True)
class FollowedStep(StepRow):
    """A committed step as those see it who follow the job."""

    chunk: str | None
    """The first 4,000 characters of what it emitted, as JSON text; None: it emitted nothing."""


@attrs.frozen(kw_only=True)
class SubstitutionRow:
    """Another model that answered calls of a job: see `fallback` of agents."""

    model: str
    answers: int
    first_seq: int
    last_seq: int
    reason: str
    """Why it was asked, the last time."""


@attrs.frozen(kw_only=True)
class FollowedJob(JobRow):
    """A job, and what happened to it since the last poll."""

    worker_attempts: int
    timeout_s: int
    result: Any
    agent_version: int | None
    cancel_reason: str | None
    error_class: str | None
    error_source: str | None
    origin_id: UUID | None
    task_state: str | None
    task_run_at: datetime | None
    code_version: str | None
    """The code of its pod."""
    locked_at: datetime | None
    history: list[Transition]
    attempts: list[EndedAttempt]
    steps: list[FollowedStep]


async def submit(
    db: Database,
    submissions: Sequence[Submission],
    *,
    by: str | None = None,
    credential: str | None = None,
    reason: str = "",
) -> Submitted:
    """Submit jobs in one transaction, in a person's name; return which were new.

    Without a credential, the database login is the requester. A reason is recorded as a fact.

    Repeating it with the same ids changes nothing, so it is safe after `OutcomeUnknownError`.
    Raises `NotFoundError` for an unknown agent, `InvalidValueError` for what JSON cannot hold.
    """
    if not reason:
        return await _submit(db, list(submissions), by=by, credential=credential)

    async def submit_and_note(connection: Connection) -> Submitted:
        inside = db.bound(connection)
        done = await _submit(inside, list(submissions), by=by, credential=credential)
        await inside.fetch("jobs.note_submitted", list(done.new), by, reason)
        return done

    return await db.transact(submit_and_note)


async def _submit(
    db: Database, batch: list[Submission], *, by: str | None, credential: str | None
) -> Submitted:
    ids = [s.id for s in batch]
    payloads = [s.payload for s in batch]
    (row,) = await db.fetch(
        "jobs.submit",
        ids,
        [s.type for s in batch],
        # Empty ones are what the server puts in the place of missing ones.
        [] if payloads.count("{}") == len(payloads) else payloads,
        unless_all_null([s.agent for s in batch]),
        unless_all_null([s.tenant for s in batch]),
        unless_all_null([s.queue_name for s in batch]),
        unless_all_null([s.priority for s in batch]),
        unless_all_null([s.delay_s for s in batch]),
        unless_all_null([s.worker_attempts for s in batch]),
        unless_all_null([s.max_retries for s in batch]),
        unless_all_null([s.timeout_s for s in batch]),
        unless_all_null([s.job_key for s in batch]),
        by,
        credential,
        unless_all_null([orjson.dumps(s.tags).decode() if s.tags else None for s in batch]),
        unless_all_null([s.traceparent for s in batch]),
        unless_all_null([s.run_at for s in batch]),
        unless_all_null([s.due_by for s in batch]),
    )
    if row["ids"] is None:
        return Submitted(frozenset(ids))
    new = frozenset[UUID](row["ids"])
    rows = await db.fetch("jobs.submitted_as", [each for each in ids if each not in new])
    return Submitted(new, {each["id"]: each["job_id"] for each in rows})


async def submit_all(
    db: Database,
    submissions: Sequence[Submission],
    *,
    by: str | None = None,
    credential: str | None = None,
    reason: str = "",
) -> Submitted:
    """Submit any number of jobs in one transaction, in batches. Raises what `submit` raises."""

    async def in_batches(connection: Connection) -> Submitted:
        inside = db.bound(connection)
        new: set[UUID] = set()
        existing: dict[UUID, UUID] = {}
        for at in range(0, len(submissions), SUBMIT_BATCH):
            batch = submissions[at : at + SUBMIT_BATCH]
            done = await submit(inside, batch, by=by, credential=credential, reason=reason)
            new |= done.new
            existing |= done.existing
        return Submitted(frozenset(new), existing)

    return await db.transact(in_batches)


async def submit_once(
    db: Database,
    submission: Submission,
    *,
    by: str | None,
    credential: str | None = None,
    reason: str = "",
) -> UUID:
    """Submit; if the reply is lost, repeat with the same id, which cannot create a second job.

    Returns the job that it stands for: another one than that of `submission` if the rule of its
    type merged it into that.

    Not for use inside a transaction. Raises what `submit` raises.
    """
    try:
        done, _ = await repeat_if_lost(
            partial(submit, db, [submission], by=by, credential=credential, reason=reason)
        )
    except OutcomeUnknownError as error:
        raise OutcomeUnknownError(
            f"it is not known whether job {submission.id} was submitted: its connection broke",
            hint=f"look once the database is back: cortex jobs show {submission.id}",
        ) from error
    return done.job_of(submission.id)


async def finish(db: Database, *, pod_id: UUID, operations: Sequence[Finish]) -> set[UUID]:
    """End jobs; return those that ended by these operations: the others lost their lease."""
    ordered = sorted(operations, key=lambda op: op.lease.job_id)
    ids = [op.lease.job_id for op in ordered]
    attempts = [op.lease.attempt for op in ordered]
    results = [op.result for op in ordered]
    if all(op.status is JobStatus.COMPLETED for op in ordered):
        return affected(await db.fetch("jobs.complete", pod_id, ids, attempts, results))
    rows = await db.fetch(
        "jobs.finish",
        pod_id,
        ids,
        attempts,
        [op.status.value for op in ordered],
        results,
        unless_all_null([op.error for op in ordered]),
        unless_all_null([op.code for op in ordered]),
        unless_all_null([op.error_class for op in ordered]),
        unless_all_null([op.error_source for op in ordered]),
        unless_all_null([op.fact for op in ordered]),
    )
    return affected(rows)


async def settled(db: Database, operations: Sequence[Finish]) -> set[UUID]:
    """Return the jobs that have already ended as requested, under the same attempts."""
    rows = await db.fetch(
        "jobs.settled",
        [op.lease.job_id for op in operations],
        [op.lease.attempt for op in operations],
        [op.status.value for op in operations],
    )
    return affected(rows)


@attrs.frozen(kw_only=True)
class Cancellation:
    """The result of a request to cancel a job."""

    before: JobStatus
    after: JobStatus
    pod_id: UUID | None
    """The pod that still has to stop it, when `after` is RUNNING."""


async def cancel(db: Database, job_id: UUID, *, by: str, reason: str) -> Cancellation:
    """Cancel a job, or request it from the pod that runs it.

    Raises `NotFoundError`, and `ConflictError` if the job has already ended.
    """
    for _ in range(CANCEL_TRIES):
        row = await db.fetch_one("jobs.cancel", [job_id], by, reason)
        if row is None:
            raise _no_such_job(job_id)
        if not row["is_outdated"]:
            break
    else:
        raise UnavailableError(f"job {job_id} changes all the time", hint="try again")
    before = JobStatus(row["before"])
    if before.is_terminal:
        raise ConflictError(f"job {job_id} is {before.value} already")
    return Cancellation(before=before, after=JobStatus(row["after"]), pod_id=row["pod_id"])


async def prioritize(db: Database, job_id: UUID, priority: int, *, by: str, reason: str) -> int:
    """Give a job another priority; return the one that it had.

    A running job has it from its next wait on. Raises `NotFoundError`, and `ConflictError` if the
    job has ended.
    """
    row = await db.fetch_one("jobs.prioritize", job_id, priority, by, reason)
    if row is None:
        raise _no_such_job(job_id)
    if row["is_ended"]:
        raise ConflictError(f"job {job_id} is {row['status']} already")
    before: int = row["before"]
    return before


async def cancel_requests(
    db: Database, *, pod_id: UUID, job_ids: Sequence[UUID]
) -> list[tuple[UUID, int]]:
    """Return (job, attempt) of the pod's jobs that a person wants to cancel."""
    rows = await db.fetch("jobs.cancel_requests", pod_id, list(job_ids))
    return [(row["id"], row["attempt"]) for row in rows]


async def ensure_types(db: Database, policies: Mapping[str, JobPolicy]) -> None:
    """Write the defaults that `submit_job` uses for these job types."""
    names = list(policies)
    await db.fetch(
        "jobs.ensure_types",
        names,
        [policies[name].worker_attempts for name in names],
        [policies[name].max_retries for name in names],
        [policies[name].timeout_s for name in names],
        [hard_timeout_s(name, policies[name].timeout_s) for name in names],
    )


async def ensure_rules(db: Database, rules: Mapping[str, SubmitRule | None]) -> None:
    """Write the rules about submits of these job types, which `submit_jobs` applies."""
    ruled = {name: rule for name, rule in rules.items() if rule is not None}
    fields = [rule.fields for rule in ruled.values()]
    await db.fetch(
        "jobs.ensure_rules",
        list(rules),
        list(ruled),
        [each["kind"] for each in fields],
        [each["key"] for each in fields],
        [orjson.dumps(arguments_of(rule)).decode() for rule in ruled.values()],
        [each.get("on_conflict") for each in fields],
        [each.get("period_s") for each in fields],
        [each.get("longest_s") for each in fields],
    )


async def show(db: Database, job_id: UUID) -> ShownJob:
    """Return one job with its agent, pod and task. Raises `NotFoundError`."""
    row = await db.fetch_one("jobs.show", job_id)
    if row is None:
        raise _no_such_job(job_id)
    return row_of(ShownJob, row, why=None)


@attrs.frozen(kw_only=True)
class TypedJob:
    """A job and its type."""

    id: UUID
    type: str


async def of_types(db: Database, job_ids: Sequence[UUID], types: Sequence[str]) -> list[TypedJob]:
    """Return those of some jobs that have one of these types."""
    return rows_of(TypedJob, await db.fetch("jobs.of_types", list(job_ids), list(types)))


async def find(db: Database, reference: str) -> UUID:
    """Return the job with an id, or with the end of one.

    Raises `NotFoundError`, or `ConflictError` when several recent ids have that end.
    """
    return await by_name(db, reference, kind="job", query="jobs.ids_by_suffix")


async def history(
    db: Database, job_id: UUID, *, after: int = 0, limit: int | None = None
) -> list[Transition]:
    """Return a job's transitions in order, after a history id."""
    return rows_of(Transition, await db.fetch("jobs.history", job_id, after, limit))


async def attempts(
    db: Database, job_id: UUID, *, after: int = 0, limit: int | None = None
) -> list[EndedAttempt]:
    """Return a job's attempts that ended before it did, in order."""
    return rows_of(EndedAttempt, await db.fetch("jobs.attempts", job_id, after, limit))


async def follow(
    db: Database, job_id: UUID, *, after: tuple[int, int, int] = (0, 0, 0), limit: int = 500
) -> FollowedJob:
    """Return a job with the `history`, `attempts` and `steps` that came after these, consistently.

    `after`: ids of the last known transition, ended attempt and step. Raises `NotFoundError`.
    """
    row = await db.fetch_one("jobs.follow", job_id, *after, limit)
    if row is None:
        raise _no_such_job(job_id)
    return row_of(FollowedJob, row, last_error=None, why=None)


async def unfinished(db: Database, *, agent: str, payload: dict[str, object]) -> UUID | None:
    """Return the newest unfinished job of an agent whose payload contains this."""
    row = await db.fetch_one("jobs.unfinished", agent, orjson.dumps(payload).decode())
    return row["id"] if row else None


async def counts(db: Database, job_ids: Sequence[UUID]) -> dict[JobStatus, int]:
    """Return how many of these jobs are in which state."""
    rows = await db.fetch("jobs.counts", list(job_ids))
    return {JobStatus(row["status"]): row["count"] for row in rows}


def _no_such_job(job_id: UUID) -> NotFoundError:
    return NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
