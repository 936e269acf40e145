"""`/v1/jobs`: lists of jobs, and single jobs."""

from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.job_filter import TEXT_MAX, JobCursor, parse_filter
from cortex.domain.why_facts import WhyFacts
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import NEXT_CURSOR, cursor_field, cursor_of, limit_field, place_of
from cortex.http.framework.resource import (
    document_of,
    page_of,
    schema_of_document,
    schema_of_page,
    schema_of_rows,
)
from cortex.http.framework.route import UUID_PARAM, answer, read
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.store import facts, job_pages, jobs
from cortex.store import why as why_store
from cortex.store.facts import JobChange
from cortex.store.tenants import Kind
from cortex.view import why as rules
from cortex.view.resources.jobs import ATTEMPT, JOB, JOBS
from cortex.view.why import Cause

ATTEMPTS_MAX: Final = 200
JOB_PATH: Final = "/v1/jobs/{job_id}"
JOB_PARAMS: Final = {"job_id": UUID_PARAM}


# --- lists


@attrs.frozen(kw_only=True)
class JobsQuery:
    """Selects jobs, the newest first."""

    filter: str = text(
        doc="all terms must hold, values with commas are alternatives, `*` is any text: "
        "`status:retry,fail type:T agent:invoice-* queue:Q tenant:T code:C age>10m age<2d "
        "created>2026-01-31 created<2026-02-01T12:00:00Z id:9f3a1c`; of failed jobs "
        "also `letter:open,escalated fingerprint:3fa9 class:permanent ended<2h`",
        length_max=TEXT_MAX,
        default="",
    )
    cursor: str | None = cursor_field()
    limit: int = limit_field()


async def list_jobs(request: CheckedRequest[JobsQuery, None], api: Api) -> Response:
    which = attrs.evolve(parse_filter(request.query.filter), tenant=request.tenant)
    cursor = request.query.cursor
    before = None if cursor is None else JobCursor(*place_of(cursor))
    if before is not None and before.at is None:
        await require_own(api.port, request.principal, Kind.JOB, [before.id])
    found = await api.port(job_pages.page, which, before=before, limit=request.query.limit)
    next_cursor = None if found.next is None else cursor_of(found.next.id, found.next.at)
    return answer(page_of(JOBS, found.jobs, next_cursor=next_cursor, is_short=found.is_short))


# --- a single job


SHOWN_JOB: Final = schema_of_document(
    "ShownJob",
    doc="A job and its records.",
    job=(schema_of_rows(JOB), ""),
    attempts=(
        list[schema_of_rows(ATTEMPT)],  # type: ignore[misc]
        f"attempts that ended early, the first {ATTEMPTS_MAX}",
    ),
    changes=(list[JobChange], "changes by people: who, when and why"),
)


async def show_job(request: CheckedRequest[None, None], api: Api) -> Response:
    job_id = request.path["job_id"]
    job = await api.port(jobs.show, job_id)
    attempts = await api.port(jobs.attempts, job_id, limit=ATTEMPTS_MAX)
    shown = {
        "job": document_of(JOB, job),
        "attempts": [document_of(ATTEMPT, row) for row in attempts],
        "changes": await api.port(facts.changes_of_job, job_id),
    }
    return answer(shown)


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
    read(
        "/v1/jobs",
        list_jobs,
        "List jobs that match a filter, the newest first.",
        query=JobsQuery,
        answers={
            200: schema_of_page(
                JOBS,
                doc="A page of jobs, the newest first.",
                next_cursor=NEXT_CURSOR,
                is_short=(
                    bool,
                    "the page is not full, but more jobs may match: the scan stopped at its limit",
                ),
            )
        },
        tenancy=Tenancy.FILTERED,
    ),
    read(
        JOB_PATH,
        show_job,
        "Show everything about a job except its steps and its history.",
        params=JOB_PARAMS,
        answers={200: SHOWN_JOB},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
    read(
        f"{JOB_PATH}/why",
        why_job,
        "Explain why a job is not running, and what would help.",
        params=JOB_PARAMS,
        answers={200: JobWhy},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
)
