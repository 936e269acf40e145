"""`/v1/facts`: failures, costs and changes."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.phrases import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, record, text, whole
from cortex.store import facts

ID_MAX: Final = 10**18 - 1
SOURCE_MAX: Final = 300


class FactType(StrEnum):
    """The subject of a fact."""

    ERROR = "error"
    COST = "cost"
    LIFECYCLE = "lifecycle"


@attrs.frozen(kw_only=True)
class FactsQuery:
    """Selects facts, the newest first."""

    type: list[FactType] = field(doc="[all]", factory=list)
    since: str = text(doc="not older than 90s, 15m, 2h, 3d", length_max=8, default="1d")
    source: str | None = text(
        doc="of this source: `llm:NAME`, `dead:FINGERPRINT` …", length_max=SOURCE_MAX, default=None
    )
    job_id: UUID | None = field(doc="of this job", default=None)
    before: int | None = whole(
        doc="`next_before` of the previous page", low=1, high=ID_MAX, default=None
    )
    limit: int = limit_field()


@attrs.frozen(kw_only=True)
class Fact:
    """A recorded event; it never changes."""

    id: int
    at: datetime
    type: FactType
    subtype: str
    source: str | None
    tenant: str
    job_id: UUID | None
    attempt: int | None
    step: str | None
    agent: str | None
    agent_version: int | None
    pod: str | None
    trace_id: str | None
    amount: float | None = field(doc="amount of a cost, in US dollars")
    is_resolved: bool | None = field(doc="whether an error is resolved")
    resolved_by: int | None = field(doc="the fact that resolved it")
    data: dict[str, Any]


@attrs.frozen(kw_only=True)
class Facts:
    """A page of facts, the newest first."""

    facts: list[Fact]
    next_before: int | None = field(doc="`before` of the next page; null: last page")


async def list_facts(request: CheckedRequest[FactsQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        facts.page,
        types=tuple(dict.fromkeys(query.type)) or facts.TYPES,
        since_s=parse_span(query.since),
        source=query.source,
        job_id=query.job_id,
        before=query.before,
        limit=query.limit + 1,
    )
    found = [record(Fact, row) for row in rows[: query.limit]]
    return answer(Facts(facts=found, next_before=found[-1].id if len(rows) > query.limit else None))


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/facts",
        handle=list_facts,
        role=Role.VIEWER,
        summary="List failures, costs and changes.",
        query=FactsQuery,
        answers={200: Facts},
    ),
)
