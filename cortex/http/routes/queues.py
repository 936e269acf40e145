"""`/v1/queues`: worker queues, and the order of a named one."""

from typing import Any, Final, Literal

import attrs
from starlette.responses import Response

from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import schema_of_page
from cortex.http.framework.route import answer, change, read
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import queues as store
from cortex.view.queues import NAME_MAX, parse_named_queue
from cortex.view.resources.queues import QUEUES
from cortex.view.verbs import ORDER_QUEUE

PAGE: Final = schema_of_page(
    QUEUES,
    doc="The default queue, the paused ones, then by name those that have tasks or are strict.",
)


@attrs.frozen(kw_only=True)
class QueuesQuery:
    """Limits the list."""

    limit: int = limit_field(store.QUEUES_MAX)


@attrs.frozen(kw_only=True)
class QueueOrder:
    """When the next job of a named queue begins."""

    queue: str = text(doc="a named queue", length_min=1, length_max=NAME_MAX)
    order: Literal["strict", "relaxed"] = field(
        doc="strict: when the job before has ended; relaxed: also while that waits"
    )
    reason: str = reason_field(ORDER_QUEUE)


async def list_queues(request: CheckedRequest[QueuesQuery, None], api: Api) -> Response:
    return answer(await _listed(api, limit=request.query.limit))


async def order_queue(requested: CheckedRequest[None, QueueOrder], api: Api) -> Response:
    body, by = requested.body, requested.principal.name
    queue = parse_named_queue(body.queue)
    act = store.make_strict if body.order == "strict" else store.make_relaxed

    async def work(db: Database) -> bool:
        return await act(db, queue, by=by, reason=body.reason)

    request = {"name": queue, "by": by, "reason": body.reason}
    operation = f"queues.{act.__name__}"
    done = await once(requested, api, work, operation=operation, request=request)
    return answer(await _listed(api, [queue]), headers=headers_of(done))


async def _listed(api: Api, *only: Any, **which: Any) -> dict[str, Any]:
    rows = await api.port(store.page, *only, **which)
    return {QUEUES.noun: [QUEUES.document(row) | {"queue": row.queue} for row in rows]}


ROUTES: Final = (
    read(
        "/v1/queues",
        list_queues,
        "List worker queues, and what waits in each.",
        query=QueuesQuery,
        answers={200: PAGE},
        tenancy=Tenancy.INSTALLATION,
    ),
    change(
        ORDER_QUEUE,
        "/v1/queues/order",
        order_queue,
        "Make a named queue strict or relaxed: when its next job begins.",
        body=QueueOrder,
        answers={200: PAGE},
        tenancy=Tenancy.INSTALLATION,
    ),
)
