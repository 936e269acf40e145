"""`/v1/dead-letters`: jobs that failed for good, by error or one by one."""

from typing import Any, Final

import attrs
from starlette.responses import Response

from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.failure import FailureClass
from cortex.domain.job_filter import TEXT_MAX, JobFilter, of_letters, parse_filter, term, with_terms
from cortex.domain.phrases import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import NEXT_CURSOR, cursor_field, cursor_of, id_of, limit_field
from cortex.http.framework.resource import (
    document_of,
    page_of,
    schema_of_document,
    schema_of_rows,
)
from cortex.http.framework.route import UUID_PARAM, Method, Route, answer
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.http.routes.jobs import ATTEMPTS_MAX
from cortex.store import dead_letters, jobs
from cortex.store.tenants import Kind
from cortex.view.resources.dead_letters import ERRORS, LETTER, LETTERS
from cortex.view.resources.jobs import ATTEMPT

NAME_MAX: Final = 200
LETTER_PATH: Final = "/v1/dead-letters/{job_id}"
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
    filter: str = text(
        doc="the same as that of a list of jobs; the other criteria are short forms of its terms",
        length_max=TEXT_MAX,
        default="",
    )

    def typed(self, *states: DeadLetterState) -> str:
        """Return the criteria as a filter; "" if there are none. Raises `UsageError`."""
        criteria = {
            "fingerprint": self.fingerprint,
            "type": self.type,
            "code": self.code,
            "class": self.error_class,
            "agent": self.agent,
            "tenant": self.tenant,
        }
        given = {key: value for key, value in criteria.items() if value is not None}
        terms = [with_terms(self.filter, given)]
        if self.since is not None:
            terms.append(f"ended<{parse_span(self.since):.0f}s")
        terms += [term("letter", state) for state in states]
        return " ".join(terms).strip()


@attrs.frozen(kw_only=True)
class DeadLetterErrorsQuery(DeadLetterChoice):
    """Selects errors, the most recent first."""

    state: list[DeadLetterState] = field(doc="[OPEN, ESCALATED, ARCHIVED]", factory=list)
    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class DeadLettersQuery(DeadLetterErrorsQuery):
    """Selects dead letters, the newest first."""

    cursor: str | None = cursor_field()


ERRORS_PAGE: Final = schema_of_document(
    "DeadLetterGroups",
    doc="Errors, the most recent first; of the newest "
    f"{dead_letters.COUNTED_MAX:,} matching dead letters.",
    errors=(list[schema_of_rows(ERRORS)], ""),  # type: ignore[misc]
)
LETTERS_PAGE: Final = schema_of_document(
    "DeadLetters",
    doc="A page of dead letters, the newest first.",
    letters=(list[schema_of_rows(LETTERS)], ""),  # type: ignore[misc]
    next_cursor=NEXT_CURSOR,
)
SHOWN: Final = schema_of_rows(
    LETTER,
    attempts=(
        list[schema_of_rows(ATTEMPT)],  # type: ignore[misc]
        f"attempts that ended early, the first {ATTEMPTS_MAX}",
    ),
)


async def list_letter_errors(
    request: CheckedRequest[DeadLetterErrorsQuery, None], api: Api
) -> Response:
    """List errors, each with its count and its newest dead letter."""
    rows = await api.port(dead_letters.groups, _which(request), limit=request.query.limit)
    return answer(page_of(ERRORS, rows))


async def list_letters(request: CheckedRequest[DeadLettersQuery, None], api: Api) -> Response:
    query, before = request.query, id_of(request.query.cursor)
    if before is not None:
        await require_own(api.port, request.principal, Kind.JOB, [before])
    rows = await api.port(dead_letters.page, _which(request), before=before, limit=query.limit + 1)
    shown = rows[: query.limit]
    next_cursor = cursor_of(shown[-1].job_id) if len(rows) > query.limit else None
    return answer(page_of(LETTERS, shown, next_cursor=next_cursor))


async def show_letter(request: CheckedRequest[None, None], api: Api) -> Response:
    row = await api.port(dead_letters.show, request.path["job_id"])
    attempts = await api.port(jobs.attempts, request.path["job_id"], limit=ATTEMPTS_MAX)
    shown = [document_of(ATTEMPT, each) for each in attempts]
    return answer(document_of(LETTER, row) | {"attempts": shown})


def _which(request: CheckedRequest[Any, None]) -> JobFilter:
    which = parse_filter(of_letters(request.query.typed(*request.query.state)))
    return attrs.evolve(which, tenant=request.tenant)


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/dead-letters",
        handle=list_letters,
        role=Role.VIEWER,
        summary="List dead letters, the newest first.",
        query=DeadLettersQuery,
        answers={200: LETTERS_PAGE},
        tenancy=Tenancy.FILTERED,
    ),
    Route(
        method=Method.GET,
        path="/v1/dead-letters/errors",
        handle=list_letter_errors,
        role=Role.VIEWER,
        summary="List the errors of dead letters, with their counts.",
        query=DeadLetterErrorsQuery,
        answers={200: ERRORS_PAGE},
        tenancy=Tenancy.FILTERED,
    ),
    Route(
        method=Method.GET,
        path=LETTER_PATH,
        handle=show_letter,
        role=Role.VIEWER,
        summary="Show why a job failed, and the effect of a retry.",
        params=LETTER_PARAMS,
        answers={200: SHOWN},
        refuses=(404,),
        tenancy=Tenancy.JOB,
    ),
)
