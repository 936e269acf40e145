"""`/v1/costs`: tokens and money of model calls, by group."""

from datetime import date
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.phrases import parse_span
from cortex.domain.prices import PRICES_AS_OF
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.resource import document_of, page_of, schema_of_page, schema_of_rows
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy
from cortex.store import facts
from cortex.store.facts import CostGroup
from cortex.view.resources.costs import COSTS

GROUPS_MAX: Final = 1000


@attrs.frozen(kw_only=True)
class CostsQuery:
    """Selects model calls, and what they are summed by."""

    by: CostGroup = field(doc="what a row is of", default=CostGroup.AGENT)
    since: str = text(doc="not older than 90s, 15m, 2h, 3d", length_max=8, default="30d")
    limit: int = limit_field(GROUPS_MAX)


async def list_costs(request: CheckedRequest[CostsQuery, None], api: Api) -> Response:
    query = request.query
    rows, total = await api.port(
        facts.costs,
        by=query.by,
        since_s=parse_span(query.since),
        limit=query.limit,
        tenant=request.tenant,
    )
    total_of_all = document_of(COSTS, total) | {"name": None}
    return answer(page_of(COSTS, rows, total=total_of_all, list_prices_as_of=PRICES_AS_OF))


ROUTES: Final = (
    read(
        "/v1/costs",
        list_costs,
        "List the cost of model calls by agent, model, tenant, job or day, and in total.",
        query=CostsQuery,
        answers={
            200: schema_of_page(
                COSTS,
                doc="The most expensive groups, or the newest days.",
                total=(schema_of_rows(COSTS), "of all groups, also those that are not listed"),
                list_prices_as_of=(date, "of prices that the setting `prices` does not name"),
            )
        },
        tenancy=Tenancy.FILTERED,
    ),
)
