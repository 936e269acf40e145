"""`/v1/pods`: pods and their health."""

from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.resource import page_of, schema_of_page
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import whole
from cortex.http.framework.tenancy import Tenancy
from cortex.store import drains, pods
from cortex.view.resources.pods import PODS

ENDED_MAX: Final = 50


@attrs.frozen(kw_only=True)
class PodsQuery:
    """Selects pods."""

    ended: int = whole(
        doc="number of stopped pods to include, the newest", low=0, high=ENDED_MAX, default=0
    )


async def list_pods(request: CheckedRequest[PodsQuery, None], api: Api) -> Response:
    rows = await api.port(drains.with_moved, await api.port(pods.page, ended=request.query.ended))
    return answer(page_of(PODS, rows, now=rows[0].now if rows else None))


ROUTES: Final = (
    read(
        "/v1/pods",
        list_pods,
        "List pods and their health.",
        query=PodsQuery,
        answers={
            200: schema_of_page(
                PODS,
                doc="Living pods, then stopped ones.",
                now=(datetime | None, "the database's time, for comparison; null without pods"),
            )
        },
        tenancy=Tenancy.INSTALLATION,
    ),
)
