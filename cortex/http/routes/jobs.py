"""`/v1/jobs`: lists of jobs, and single jobs."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.job import JobStatus, RunningStep
from cortex.domain.job_filter import TEXT_MAX, JobCursor, parse_filter
from cortex.domain.token import Role
from cortex.domain.why_facts import WhyFacts
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import cursor_field, cursor_of, limit_field, place_of
from cortex.http.framework.route import UUID_PARAM, Method, Route, answer
from cortex.http.framework.shape import field, record, text
from cortex.store import facts, job_pages, jobs
from cortex.store import why as why_store
from cortex.store.facts import JobChange
from cortex.view import why as rules
from cortex.view.why import Cause

ATTEMPTS_MAX: Final = 200
JOB: Final = "/v1/jobs/{job_id}"
JOB_PARAMS: Final = {"job_id": UUID_PARAM}


# --- lists


@attrs.frozen(kw_only=True)
class JobsQuery:
    """Selects jobs, the newest first."""

    filter: str = text(
        doc="all terms must hold, values with commas are alternatives, `*` is any text: "
        "`status:retry,fail type:T agent:invoice-* queue:Q tenant:T code:C age>10m age<2d "
        "created>2026-01-31 created<2026-02-01T12:00:00Z id:9f3a1c`",
        length_max=TEXT_MAX,
        default="",
    )
    cursor: str | None = cursor_field()
    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class ListedJob:
    """A job in a list."""

    id: UUID
    type: str
    tenant: str
    agent: str | None
    queue_name: str | None
    tags: list[str] | None
    status: JobStatus
    attempt: int
    retry_count: int
    max_retries: int
    checkpoint: dict[str, Any] = field(doc="the last step, and the cost of all steps")
    run_at: datetime = field(doc="earliest start")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    next_retry_at: datetime | None
    heartbeat_at: datetime | None
    cancel_requested_at: datetime | None
    cancelled_by: str | None
    error_message: str | None
    error_code: str | None
    waiting_on: str | None = field(doc="what it waits for, besides time")
    pod: str | None


@attrs.frozen(kw_only=True)
class Jobs:
    """A page of jobs, the newest first."""

    jobs: list[ListedJob]
    next_cursor: str | None = field(doc="cursor of the next page; null: last page")
    is_short: bool = field(
        doc="the page is not full, but more jobs may match: the scan stopped at its limit"
    )


async def list_jobs(request: CheckedRequest[JobsQuery, None], api: Api) -> Response:
    which, cursor = parse_filter(request.query.filter), request.query.cursor
    before = None if cursor is None else JobCursor(*place_of(cursor))
    found = await api.port(job_pages.page, which, before=before, limit=request.query.limit)
    return answer(
        Jobs(
            jobs=[record(ListedJob, row) for row in found.jobs],
            next_cursor=None if found.next is None else cursor_of(found.next.id, found.next.at),
            is_short=found.is_short,
        )
    )


# --- a single job


@attrs.frozen(kw_only=True)
class Job:
    """Everything recorded about a job, except steps and history."""

    id: UUID
    type: str
    tenant: str
    agent: str | None
    agent_version: int | None
    status: JobStatus
    attempt: int
    retry_count: int
    max_retries: int
    worker_attempts: int
    attempts_spent: int | None
    pod_deaths: int
    timeout_s: int
    priority: int
    queue_name: str | None
    tags: list[str] | None
    pod: str | None
    pod_id: UUID | None
    code_version: str | None = field(doc="the code of that pod")
    running_step: RunningStep | None = field(doc="the step that runs longest; null: none runs long")
    task_state: str | None
    task_run_at: datetime | None
    next_retry_at: datetime | None
    heartbeat_at: datetime | None
    waiting_on: str | None
    suspended_at: datetime | None
    waited_s: float
    rate_limit_count: int
    config_id: int | None
    origin_id: UUID | None = field(doc="the failed job that it continues")
    lineage_id: UUID | None
    submitted_by: str | None
    trace_id: str = field(doc="its trace: 32 hex digits")
    schedule: str | None = field(doc="the schedule that submitted it")
    scheduled_for: datetime | None = field(doc="the instant of that schedule")
    schedule_reason: str | None = field(doc="why that instant is made up for; null: it was on time")
    error_class: str | None
    error_source: str | None
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    created_at: datetime
    updated_at: datetime
    cancelled_by: str | None
    cancel_reason: str | None
    error_message: str | None
    error_code: str | None
    checkpoint: dict[str, Any]
    payload: Any
    result: Any


@attrs.frozen(kw_only=True)
class Attempt:
    """An attempt that ended before its job did."""

    attempt: int
    outcome: str
    ended_at: datetime
    due_at: datetime | None
    error: str | None
    error_class: str | None
    error_code: str | None
    error_source: str | None
    retry_count: int | None
    pod: str | None
    code_version: str | None = field(doc="the code of that pod")


@attrs.frozen(kw_only=True)
class ShownJob:
    """A job and its records."""

    job: Job
    attempts: list[Attempt] = field(doc=f"attempts that ended early, the first {ATTEMPTS_MAX}")
    changes: list[JobChange] = field(doc="changes by people: who, when and why")


async def show_job(request: CheckedRequest[None, None], api: Api) -> Response:
    job_id = request.path["job_id"]
    job = await api.port(jobs.show, job_id)
    attempts = await api.port(jobs.attempts, job_id, limit=ATTEMPTS_MAX)
    return answer(
        ShownJob(
            job=record(Job, job),
            attempts=[record(Attempt, row) for row in attempts],
            changes=await api.port(facts.changes_of_job, job_id),
        )
    )


@attrs.frozen(kw_only=True)
class JobWhy:
    """Why a job is not running, and what would help."""

    job: UUID
    cause: Cause
    sentence: str
    expected_at: datetime | None = field(doc="when that is expected to change")
    since: datetime | None
    ways_out: list[str] = field(doc="commands that would help")
    facts: WhyFacts = field(doc="the facts behind the answer")


async def why_job(request: CheckedRequest[None, None], api: Api) -> Response:
    observed = await api.port(why_store.facts_of, request.path["job_id"])
    found = rules.why(observed)
    return answer(
        JobWhy(
            job=observed.job_id,
            cause=found.cause,
            sentence=found.sentence,
            expected_at=found.expected_at,
            since=found.since,
            ways_out=list(found.ways_out),
            facts=observed,
        )
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/jobs",
        handle=list_jobs,
        role=Role.VIEWER,
        summary="List jobs that match a filter, the newest first.",
        query=JobsQuery,
        answers={200: Jobs},
    ),
    Route(
        method=Method.GET,
        path=JOB,
        handle=show_job,
        role=Role.VIEWER,
        summary="Show everything about a job except its steps and its history.",
        params=JOB_PARAMS,
        answers={200: ShownJob},
        refuses=(404,),
    ),
    Route(
        method=Method.GET,
        path=f"{JOB}/why",
        handle=why_job,
        role=Role.VIEWER,
        summary="Explain why a job is not running, and what would help.",
        params=JOB_PARAMS,
        answers={200: JobWhy},
        refuses=(404,),
    ),
)
