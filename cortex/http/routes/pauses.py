"""`/v1/pauses`: which jobs do not start, who paused them and why; pause and resume."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from starlette.responses import Response

from cortex.domain.queueing.pauses import Pausable
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import schema_of_page
from cortex.http.framework.route import Route, answer, change, read
from cortex.http.framework.shape import text
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import pauses as store
from cortex.view.resources.pauses import PAUSES
from cortex.view.verbs import PAUSE, RESUME, Verb

TARGET_MAX: Final = 120
PAGE: Final = schema_of_page(PAUSES, doc="What is paused, the latest first.")
TARGET: Final = (
    "all, type:NAME, tenant:NAME, queue:NAME (queue:default: jobs without one) or job:ID"
)


@attrs.frozen(kw_only=True)
class PauseRequest:
    """What does not start any more, and why."""

    target: str = text(doc=TARGET, length_min=1, length_max=TARGET_MAX)
    reason: str = reason_field(PAUSE)


@attrs.frozen(kw_only=True)
class ResumeRequest:
    """What starts again, and why."""

    target: str = text(doc=TARGET, length_min=1, length_max=TARGET_MAX)
    reason: str = reason_field(RESUME)


async def list_pauses(request: CheckedRequest[None, None], api: Api) -> Response:
    return answer(await _listed(api, request.tenant))


async def pause(request: CheckedRequest[None, PauseRequest], api: Api) -> Response:
    """Keep jobs from starting; running ones end their attempts."""
    return await _change(request, api, store.pause)


async def resume(request: CheckedRequest[None, ResumeRequest], api: Api) -> Response:
    return await _change(request, api, store.resume)


async def _change(
    request: CheckedRequest[None, PauseRequest] | CheckedRequest[None, ResumeRequest],
    api: Api,
    act: Callable[..., Awaitable[bool]],
) -> Response:
    target, by, reason = request.body.target, request.principal.name, request.body.reason
    tenant, named = request.tenant, Pausable.parse(target)

    async def work(db: Database) -> bool:
        return await act(db, named, by=by, reason=reason, tenant=tenant)

    asked = {"target": str(named), "reason": reason}
    done = await once(request, api, work, operation=f"pauses.{act.__name__}", request=asked)
    return answer(await _listed(api, request.tenant), headers=headers_of(done))


async def _listed(api: Api, tenant: str | None) -> dict[str, Any]:
    rows = await api.port(store.page, tenant=tenant)
    return {PAUSES.noun: [PAUSES.document(row) for row in rows]}


def _act(verb: Verb, path: str, handle: Any, body: type, summary: str) -> Route:
    return change(
        verb,
        path,
        handle,
        summary,
        body=body,
        answers={200: PAGE},
        refuses=(404,),
        tenancy=Tenancy.FILTERED,
    )


ROUTES: Final = (
    read(
        "/v1/pauses",
        list_pauses,
        "List what is paused, the latest first.",
        answers={200: PAGE},
        tenancy=Tenancy.FILTERED,
    ),
    _act(PAUSE, "/v1/pauses", pause, PauseRequest, "Keep jobs from starting."),
    _act(RESUME, "/v1/pauses/resume", resume, ResumeRequest, "Let paused jobs start again."),
)
