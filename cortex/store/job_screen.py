"""One job for its screen: what it did and does, and each of its steps in full.

One statement per poll, bounded however many steps the job has.
"""

from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import ApprovalStatus, Risk
from cortex.domain.budget import Unit
from cortex.domain.effect import EffectStatus
from cortex.domain.errors import NotFoundError
from cortex.domain.job import JobStatus
from cortex.postgres.database import Database
from cortex.store.jobs import EndedAttempt, JobRow, RunningStepNow, StepRow
from cortex.store.rows import row_of, rows_of
from cortex.store.screen_head import COUNT_MAX, Head, head_of

OTHERS_MAX: Final = 100
"""Of attempts, effects, approvals and transitions: the newest ones."""
TEXT_CHARS_MAX: Final = 65_536
"""Of an output, of arguments, of the payload."""
TOOLS_OF_ANSWER_MAX: Final = 200
"""Steps before a tool's call among which the answer that requested it is searched."""


@attrs.frozen(kw_only=True)
class WatchedStep(StepRow):
    """A committed step, without its output."""

    is_error: bool
    """Of a tool: its output is an error."""
    chunk: str | None
    """The first 4,000 characters of what it emitted, as JSON text; None: nothing, or not read."""


@attrs.frozen(kw_only=True)
class WatchedEffect:
    id: UUID
    key: str
    tool: str
    status: EffectStatus
    attempt: int
    created_at: datetime
    finished_at: datetime | None


@attrs.frozen(kw_only=True)
class WatchedApproval:
    id: UUID
    key: str
    tool: str | None
    risk: Risk
    status: ApprovalStatus
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None


@attrs.frozen(kw_only=True)
class WatchedBudget:
    """A budget that a job counts against."""

    name: str
    scope: str
    unit: Unit
    limit_amount: Decimal
    spent: Decimal


@attrs.frozen(kw_only=True)
class WatchedJob(JobRow):
    """A job with its newest activity: `OTHERS_MAX` of each kind."""

    worker_attempts: int
    agent_version: int | None
    cache_saved_usd: Decimal | None
    cancel_reason: str | None
    error_class: str | None
    origin_id: UUID | None
    parent_id: UUID | None
    has_children: bool | None
    lineage_id: UUID
    last_error_code: str | None
    breaker_state: str | None
    """Of the breaker that it waits for."""
    running_since: datetime | None
    running_step: RunningStepNow
    """None: no step runs long."""
    attempts: tuple[EndedAttempt, ...]
    effects: tuple[WatchedEffect, ...]
    approvals: tuple[WatchedApproval, ...]
    budgets: tuple[WatchedBudget, ...]
    """Those per run, and the one that it waits for."""


@attrs.frozen(kw_only=True)
class JobLook:
    """A job, some of its steps, and the head of every screen."""

    job: WatchedJob
    steps: list[WatchedStep]
    head: Head


@attrs.frozen(kw_only=True)
class WatchedMove:
    """A job went to another state."""

    id: int
    previous: JobStatus | None
    new: JobStatus
    attempt: int
    at: datetime
    waiting_on: str | None
    pod: str | None
    code_version: str | None
    """The code of that pod."""


@attrs.frozen(kw_only=True)
class StepDetail:
    """A step, committed or not, its effect, and the job's payload and history.

    Texts are JSON, of which the first `TEXT_CHARS_MAX` characters.
    """

    seq: int | None
    digest: str | None
    input: str | None
    output: str | None
    output_bytes: int | None
    asked_by: str | None
    """The answer of the model that requested it."""
    payload: str
    trace_id: str
    """Of the job; log lines and spans have it, too."""
    effect_id: UUID | None
    tool: str | None
    effect_status: EffectStatus | None
    is_sure: bool | None
    calls_count: int | None
    can_reconcile: bool | None
    why: str | None
    arguments: str | None
    effect_result: str | None
    effect_at: datetime | None
    effect_finished_at: datetime | None
    resolution: str | None
    resolved_by: str | None
    history: tuple[WatchedMove, ...]


async def look(db: Database, job_id: UUID, *, after: int | None, limit: int) -> JobLook:
    """Return a job with the steps after one in order, or with None the newest ones.

    Raises `NotFoundError`.
    """
    row = await db.fetch_one("job_screen.look", job_id, after, limit, OTHERS_MAX, COUNT_MAX)
    if row is None:
        raise _no_such_job(job_id)
    return JobLook(
        job=row_of(WatchedJob, row, why=None),
        steps=list(row_of(_Steps, row).steps),
        head=head_of(row["head"]),
    )


async def steps_before(db: Database, job_id: UUID, *, before: int, limit: int) -> list[WatchedStep]:
    """Return the steps just before a number, in order."""
    rows = await db.fetch("job_screen.steps_before", job_id, before, limit)
    return rows_of(WatchedStep, reversed(rows))


async def detail(db: Database, job_id: UUID, key: str) -> StepDetail:
    """Return a step, committed or not. Raises `NotFoundError` when there is no such job."""
    row = await db.fetch_one(
        "job_screen.detail", job_id, key, TEXT_CHARS_MAX, OTHERS_MAX, TOOLS_OF_ANSWER_MAX
    )
    if row is None:
        raise _no_such_job(job_id)
    return row_of(StepDetail, row)


@attrs.frozen
class _Steps:
    steps: tuple[WatchedStep, ...]


def _no_such_job(job_id: UUID) -> NotFoundError:
    return NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
