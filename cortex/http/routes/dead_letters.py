"""`/v1/dead-letters`: jobs that failed for good, by their errors or one by one."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain import dead_letter
from cortex.domain.dead_letter import UNRESOLVED, DeadLetterState, FailureCause, prospect
from cortex.domain.failure import FailureClass
from cortex.domain.job import JobStatus
from cortex.domain.timeouts import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import cursor_field, cursor_of, id_of, limit_field
from cortex.http.framework.route import UUID_PARAM, Method, Route, answer
from cortex.http.framework.shape import record, text, told
from cortex.http.routes.jobs import ATTEMPTS_MAX, Attempt
from cortex.store import dead_letters, jobs
from cortex.store.dead_letters import DeadLetterFilter

NAME_MAX: Final = 200
LETTER: Final = "/v1/dead-letters/{job_id}"
LETTER_PARAMS: Final = {"job_id": UUID_PARAM}


def name_field(doc: str) -> Any:
    """Make the field of a name that letters are chosen by."""
    return text(doc=doc, length_min=1, length_max=NAME_MAX, default=None)


@attrs.frozen(kw_only=True)
class DeadLetterChoice:
    """Which letters: all that is given must hold."""

    fingerprint: str | None = text(
        doc="the error, or the beginning of its fingerprint",
        length_max=12,
        pattern="[0-9a-f]{4,12}",
        default=None,
    )
    type: str | None = name_field("of this job type")
    code: str | None = name_field("with errors of this code")
    error_class: FailureClass | None = told(doc="with errors of this class", default=None)
    agent: str | None = name_field("of this agent's jobs")
    tenant: str | None = name_field("of this tenant's jobs")
    since: str | None = text(
        doc="that failed at most so long ago: 90s, 15m, 2h, 3d", length_max=8, default=None
    )

    def as_filter(self, states: tuple[DeadLetterState, ...] = UNRESOLVED) -> DeadLetterFilter:
        """Return what the store takes. Raises `UsageError` for a time that is none."""
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
    """Which errors, that which came last first."""

    state: list[DeadLetterState] = told(doc="[OPEN, ESCALATED]", factory=list)
    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class DeadLettersQuery(DeadLetterErrorsQuery):
    """Which letters, the newest first."""

    cursor: str | None = cursor_field()


@attrs.frozen(kw_only=True)
class DeadLetterError:
    """What letters have in common."""

    fingerprint: str
    type: str
    error_message: str
    error_code: str | None
    error_class: str | None
    error_source: str | None = told(doc="what failed; null: the job's own code")
    agent: str | None
    breaker: str | None = told(doc="how the breaker of its source stands now")
    step: str | None = told(doc="the last one that was committed")
    on_retry: str = told(doc="what a retry would come to, or what became of the letter")


@attrs.frozen(kw_only=True)
class DeadLetterGroup(DeadLetterError):
    """Letters with the same error; what is told besides is of the newest one."""

    count: int
    escalated_count: int
    first_at: datetime
    last_at: datetime
    job_id: UUID = told(doc="of the newest one")
    is_all: bool = told(doc=f"false: of the newest {dead_letters.COUNTED_MAX:,} that fit")


@attrs.frozen(kw_only=True)
class DeadLetterGroups:
    """Errors, that which came last first."""

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
    is_automatic: bool = told(doc="it was retried by itself")


@attrs.frozen(kw_only=True)
class DeadLetters:
    """A page of letters, the newest first."""

    letters: list[DeadLetter]
    next_cursor: str | None = told(doc="of the next page; null: there are no more")


@attrs.frozen(kw_only=True)
class ShownDeadLetter(DeadLetter):
    """A failed job, and all that tells why."""

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
    origin_id: UUID | None
    asks_again_after: int | None
    trace_id: str | None
    raw: str | None = told(doc="what came from a model or a tool")
    stack: str | None
    attempts: list[Attempt] = told(doc=f"those that ended early, the first {ATTEMPTS_MAX}")


async def list_letter_errors(
    asked: CheckedRequest[DeadLetterErrorsQuery, None], api: Api
) -> Response:
    """List errors, each with its count and its newest letter."""
    rows = await api.port(dead_letters.groups, _which(asked.query), limit=asked.query.limit)
    return answer(
        DeadLetterGroups(
            errors=[record(DeadLetterGroup, row, on_retry=_on_retry(row)) for row in rows]
        )
    )


async def list_letters(asked: CheckedRequest[DeadLettersQuery, None], api: Api) -> Response:
    """List letters one by one."""
    query = asked.query
    rows = await api.port(
        dead_letters.page, _which(query), before=id_of(query.cursor), limit=query.limit + 1
    )
    found = [record(DeadLetter, row, on_retry=_on_retry(row)) for row in rows[: query.limit]]
    next_cursor = cursor_of(found[-1].job_id) if len(rows) > query.limit else None
    return answer(DeadLetters(letters=found, next_cursor=next_cursor))


async def show_letter(asked: CheckedRequest[None, None], api: Api) -> Response:
    """Tell why a job failed."""
    row = await api.port(dead_letters.show, asked.path["job_id"])
    attempts = await api.port(jobs.attempts, asked.path["job_id"], limit=ATTEMPTS_MAX)
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
        summary="Tell why a job failed, and what would come of a retry.",
        params=LETTER_PARAMS,
        answers={200: ShownDeadLetter},
        refuses=(404,),
    ),
)
