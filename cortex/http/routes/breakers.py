"""`/v1/breakers`: recent failures, and overrides by people."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from starlette.responses import Response

from cortex.domain.breaker import HOLD_MAX_S, HOLD_MIN_S, NAME_MAX, policy_of
from cortex.domain.errors import UsageError
from cortex.domain.safe import safe
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import page_of, schema_of_page
from cortex.http.framework.route import Handler, Route, answer, change, read
from cortex.http.framework.shape import number, text
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import breakers as store
from cortex.store.breakers import with_past
from cortex.view.resources.breakers import BREAKERS
from cortex.view.verbs import OPEN_BREAKER

LIMIT_MAX: Final = 1_000
PAGE: Final = schema_of_page(BREAKERS, doc="Breakers: open ones first, then by newest change.")


@attrs.frozen(kw_only=True)
class BreakersQuery:
    """Limits the list."""

    limit: int = limit_field(LIMIT_MAX)


@attrs.frozen(kw_only=True)
class BreakerAct:
    """A breaker, and the reason."""

    name: str = text(doc="`llm:NAME`, `tool:NAME`, …", length_min=1, length_max=NAME_MAX)
    reason: str = reason_field(OPEN_BREAKER)


@attrs.frozen(kw_only=True)
class BreakerHold(BreakerAct):
    """A breaker, the reason, and the duration."""

    for_s: float | None = number(
        doc="seconds; null: until someone closes it",
        low=HOLD_MIN_S,
        high=HOLD_MAX_S,
        default=None,
    )


async def list_breakers(request: CheckedRequest[BreakersQuery, None], api: Api) -> Response:
    return answer(await _listed(api, limit=request.query.limit))


async def open_breaker(request: CheckedRequest[None, BreakerHold], api: Api) -> Response:
    """Hold a breaker open for some time, or until someone closes it."""
    name, for_s = request.body.name, request.body.for_s
    if safe(name) != name:
        raise UsageError(f"{safe(name)!r} contains invisible characters: no call uses it")
    return await _force(
        request, api, store.force_open, **({} if for_s is None else {"for_s": for_s})
    )


async def close_breaker(request: CheckedRequest[None, BreakerAct], api: Api) -> Response:
    """Close a breaker now and forget its failures."""
    return await _force(request, api, store.close)


async def _force(
    requested: CheckedRequest[None, Any],
    api: Api,
    act: Callable[..., Awaitable[object]],
    **how: float,
) -> Response:
    """Apply the change, and return the breaker's new state."""
    name, by, reason = requested.body.name, requested.principal.name, requested.body.reason
    policy_of(name)

    async def work(db: Database) -> object:
        return await act(db, name=name, by=by, reason=reason, **how)

    request = {"name": name, "reason": reason, **how}
    operation = f"breakers.{act.__name__}"
    done = await once(requested, api, work, operation=operation, request=request)
    return answer(await _listed(api, name=name, limit=1), headers=headers_of(done))


async def _listed(api: Api, **which: Any) -> dict[str, object]:
    return page_of(BREAKERS, await api.port(with_past, await api.port(store.page, **which)))


def _act(path: str, handle: Handler, body: type, summary: str, *refuses: int) -> Route:
    return change(
        OPEN_BREAKER,
        path,
        handle,
        summary,
        body=body,
        answers={200: PAGE},
        refuses=refuses,
        tenancy=Tenancy.INSTALLATION,
    )


ROUTES: Final = (
    read(
        "/v1/breakers",
        list_breakers,
        "List circuit breakers, open ones first.",
        query=BreakersQuery,
        answers={200: PAGE},
        tenancy=Tenancy.INSTALLATION,
    ),
    _act(
        "/v1/breakers/open",
        open_breaker,
        BreakerHold,
        ("Hold a breaker open, for some time or until someone closes it; jobs that need it wait."),
    ),
    _act(
        "/v1/breakers/close",
        close_breaker,
        BreakerAct,
        "Close a breaker now and forget its failures; waiting jobs call again at once.",
        404,
    ),
)
