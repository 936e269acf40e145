"""`/v1/facts`: failures, costs and changes."""

from typing import Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.phrases import parse_span
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.resource import page_of, schema_of_page
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, text, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.store import facts
from cortex.store.facts import FactType, ListedFact
from cortex.view.resources.facts import FACTS

ID_MAX: Final = 10**18 - 1
SOURCE_MAX: Final = 300
_CREDENTIALS: Final = frozenset({"credential", "token_id"})
"""Data of facts that only admins see."""


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


async def list_facts(request: CheckedRequest[FactsQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        facts.page,
        types=tuple(dict.fromkeys(query.type)) or tuple(FactType),
        since_s=parse_span(query.since),
        source=query.source,
        job_id=query.job_id,
        before=query.before,
        limit=query.limit + 1,
        tenant=request.tenant,
    )
    shown = rows[: query.limit]
    if not request.principal.may(Role.ADMIN):
        shown = [_without_credentials(row) for row in shown]
    following = shown[-1].id if len(rows) > query.limit else None
    return answer(page_of(FACTS, shown, next_before=following))


def _without_credentials(row: ListedFact) -> ListedFact:
    kept = {key: value for key, value in row.data.items() if key not in _CREDENTIALS}
    return attrs.evolve(row, data=kept)


ROUTES: Final = (
    read(
        "/v1/facts",
        list_facts,
        "List failures, costs and changes.",
        query=FactsQuery,
        answers={
            200: schema_of_page(
                FACTS,
                doc="A page of facts, the newest first.",
                next_before=(int | None, "`before` of the next page; null: last page"),
            )
        },
        tenancy=Tenancy.FILTERED,
    ),
)
