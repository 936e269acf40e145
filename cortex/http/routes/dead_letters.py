"""`/v1/dead-letters`: jobs that failed for good, by error or one by one."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain import dead_letter
from cortex.domain.dead_letter import (
    UNRESOLVED,
    DeadLetterFilter,
    DeadLetterState,
    FailureCause,
    prospect,
)
from cortex.domain.failure import FailureClass
from cortex.domain.job import JobStatus
from cortex.domain.phrases import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import cursor_field, cursor_of, id_of, limit_field
from cortex.http.framework.route import UUID_PARAM, Method, Route, answer
from cortex.http.framework.shape import field, record, text
from cortex.http.routes.jobs import ATTEMPTS_MAX, Attempt
from cortex.store import dead_letters, jobs

NAME_MAX: Final = 200
LETTER: Final = "/v1/dead-letters/{job_id}"
LETTER_PARAMS: Final = {"job_id": UUID_PARAM}


def name_field(doc: str) -> Any:
    """Declare a name field of the filter."""
    return text(doc=doc, length_min=1, length_max=NAME_MAX, default=None)


@attrs.frozen(kw_only=True)
class DeadLetterChoice:
    """Selects dead letters: all given criteria must hold."""

    fingerprint: str | None = text(
        doc="fingerprint of the error, or its beginning",
        length_max=12,
        pattern="[0-9a-f]{4,12}",
        default=None,
    )
    type: str | None = name_field("of this job type")
    code: str | None = name_field("with errors of this code")
    error_class: FailureClass | None = field(doc="with errors of this class", default=None)
    agent: str | None = name_field("of this agent's jobs")
    tenant: str | None = name_field("of this tenant's jobs")
    since: str | None = text(
        doc="failed at most this long ago: 90s, 15m, 2h, 3d", length_max=8, default=None
    )

    def as_filter(self, states: tuple[DeadLetterState, ...] = UNRESOLVED) -> DeadLetterFilter:
        """Return the store's filter. Raises `UsageError` for an invalid time."""
        return DeadLetterFilter(
            fingerprint=self.fingerprint,
            type=self.type,
            code=self.code,
            error_class=None if self.error_class is None else self.error_class.value,
            agent=self.agent,
            tenant=self.tenant,
            states=states,
            since_s=None if self.since is None else parse_span(self.since),
        )


@attrs.frozen(kw_only=True)
class DeadLetterErrorsQuery(DeadLetterChoice):
    """Selects errors, the most recent first."""

    state: list[DeadLetterState] = field(doc="[OPEN, ESCALATED, ARCHIVED]", factory=list)
    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class DeadLettersQuery(DeadLetterErrorsQuery):
    """Selects dead letters, the newest first."""

    cursor: str | None = cursor_field()


@attrs.frozen(kw_only=True)
class DeadLetterError:
    """Common properties of dead letters."""

    fingerprint: str
    type: str
    error_message: str
    error_code: str | None
    error_class: str | None
    error_source: str | None = field(doc="what failed; null: the job's own code")
    agent: str | None
    breaker: str | None = field(doc="current state of the breaker of its source")
    step: str | None = field(doc="the last committed step")
    on_retry: str = field(doc="effect of a retry, or how the dead letter was resolved")


@attrs.frozen(kw_only=True)
class DeadLetterGroup(DeadLetterError):
    """Dead letters with the same error; the other fields are those of the newest one."""

    count: int
    escalated_count: int
    first_at: datetime
    last_at: datetime
    job_id: UUID = field(doc="job of the newest one")
    is_all: bool = field(doc=f"false: counted only the newest {dead_letters.COUNTED_MAX:,} matches")


@attrs.frozen(kw_only=True)
class DeadLetterGroups:
    """Errors, the most recent first."""

    errors: list[DeadLetterGroup]


@attrs.frozen(kw_only=True)
class DeadLetter(DeadLetterError):
    """A failed job."""

    job_id: UUID
    lineage_id: UUID
    tenant: str
    state: DeadLetterState
    created_at: datetime
    triaged_at: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None
    reason: str | None
    retried_as: UUID | None
    is_automatic: bool = field(doc="retried automatically")


@attrs.frozen(kw_only=True)
class DeadLetters:
    """A page of dead letters, the newest first."""

    letters: list[DeadLetter]
    next_cursor: str | None = field(doc="cursor of the next page; null: last page")


@attrs.frozen(kw_only=True)
class ShownDeadLetter(DeadLetter):
    """A failed job with everything that explains the failure."""

    agent_version: int | None
    payload: Any
    attempt: int
    worker_attempts: int
    retry_count: int
    max_retries: int
    timeout_s: int
    pod: str | None
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime
    step_at: datetime | None
    spent_usd: float | None
    retried_status: JobStatus | None
    payload_changes: list[dict[str, Any]] | None = field(
        doc="differences of the payload that it was retried with: field, old, new; null: none"
    )
    origin_id: UUID | None
    asks_again_after: int | None
    trace_id: str | None
    raw: str | None = field(doc="raw response of a model or a tool")
    stack: str | None
    attempts: list[Attempt] = field(doc=f"attempts that ended early, the first {ATTEMPTS_MAX}")


async def list_letter_errors(
    request: CheckedRequest[DeadLetterErrorsQuery, None], api: Api
) -> Response:
    """List errors, each with its count and its newest dead letter."""
    rows = await api.port(dead_letters.groups, _which(request.query), limit=request.query.limit)
    return answer(
        DeadLetterGroups(
            errors=[record(DeadLetterGroup, row, on_retry=_on_retry(row)) for row in rows]
        )
    )


async def list_letters(request: CheckedRequest[DeadLettersQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        dead_letters.page, _which(query), before=id_of(query.cursor), limit=query.limit + 1
    )
    found = [record(DeadLetter, row, on_retry=_on_retry(row)) for row in rows[: query.limit]]
    next_cursor = cursor_of(found[-1].job_id) if len(rows) > query.limit else None
    return answer(DeadLetters(letters=found, next_cursor=next_cursor))


async def show_letter(request: CheckedRequest[None, None], api: Api) -> Response:
    row = await api.port(dead_letters.show, request.path["job_id"])
    attempts = await api.port(jobs.attempts, request.path["job_id"], limit=ATTEMPTS_MAX)
    shown = record(
        ShownDeadLetter,
        row,
        on_retry=_on_retry(row),
        attempts=[record(Attempt, each) for each in attempts],
    )
    return answer(shown)


def _which(query: DeadLetterErrorsQuery) -> DeadLetterFilter:
    return query.as_filter(tuple(query.state) or UNRESOLVED)


def _on_retry(row: dead_letter.DeadLetterHead) -> str:
    if not isinstance(row, dead_letter.DeadLetter) or row.state.is_unresolved:
        return prospect(FailureCause.of(row), step=row.step)
    return f"was {row.state.value.lower()} by {row.resolved_by}"


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/dead-letters",
        handle=list_letters,
        role=Role.VIEWER,
        summary="List dead letters, the newest first.",
        query=DeadLettersQuery,
        answers={200: DeadLetters},
    ),
    Route(
        method=Method.GET,
        path="/v1/dead-letters/errors",
        handle=list_letter_errors,
        role=Role.VIEWER,
        summary="List the errors of dead letters, with their counts.",
        query=DeadLetterErrorsQuery,
        answers={200: DeadLetterGroups},
    ),
    Route(
        method=Method.GET,
        path=LETTER,
        handle=show_letter,
        role=Role.VIEWER,
        summary="Show why a job failed, and the effect of a retry.",
        params=LETTER_PARAMS,
        answers={200: ShownDeadLetter},
        refuses=(404,),
    ),
)
