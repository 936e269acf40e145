"""`/v1/breakers`: recent failures, and overrides by people."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

import attrs
from starlette.responses import Response

from cortex.domain.breaker import (
    ERRORS_MAX,
    HOLD_MAX_S,
    HOLD_MIN_S,
    NAME_MAX,
    BreakerState,
    Past,
    policy_of,
)
from cortex.domain.errors import UsageError
from cortex.domain.safe import safe
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Handler, Method, Route, answer
from cortex.http.framework.shape import field, number, record, text
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import breakers as store
from cortex.store.breakers import with_past
from cortex.view.verbs import OPEN_BREAKER

LIMIT_MAX: Final = 1_000


@attrs.frozen(kw_only=True)
class BreakersQuery:
    """Limits the list."""

    limit: int = limit_field(LIMIT_MAX)


@attrs.frozen(kw_only=True)
class BreakerTurn:
    """A change of a breaker's state."""

    at: datetime
    before: BreakerState
    after: BreakerState


@attrs.frozen(kw_only=True)
class BreakerError:
    """An error that counts for the breaker."""

    at: datetime
    code: str
    message: str


@attrs.frozen(kw_only=True)
class BreakerRow:
    """A circuit breaker, shared by all pods."""

    name: str
    state: BreakerState
    failures: int = field(doc="consecutive failures")
    requests: int = field(doc="requests since it last closed, as far as reported")
    opened_at: datetime | None
    open_until: datetime | None = field(doc="when one call may test it")
    probe_pod: str | None = field(doc="the pod that tests it now")
    forced_by: str | None = field(doc="the person who holds it open")
    forced_reason: str | None
    forced_at: datetime | None
    last_error: str | None
    escalated_at: datetime | None = field(doc="when a person was asked for help")
    updated_at: datetime
    waiting: int = field(doc=f"waiting jobs, up to {store.COUNT_MAX:,}")
    turns: list[BreakerTurn] = field(doc="changes of state in the last hour, the oldest first")
    known_since: datetime | None = field(doc="earlier changes were not read; null: all were read")
    errors: list[BreakerError] = field(doc=f"the last {ERRORS_MAX} that counted, the newest first")


@attrs.frozen(kw_only=True)
class BreakerList:
    """Breakers: open ones first, then by newest change."""

    breakers: list[BreakerRow]


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


async def _listed(api: Api, **which: Any) -> BreakerList:
    rows = await api.port(with_past, await api.port(store.page, **which))
    return BreakerList(breakers=[_row(row) for row in rows])


def _row(row: store.BreakerRow) -> BreakerRow:
    past = row.past or Past()
    return record(
        BreakerRow,
        row,
        turns=[record(BreakerTurn, turn) for turn in past.turns],
        known_since=past.known_since,
        errors=[record(BreakerError, error) for error in past.errors],
    )


def _act(path: str, handle: Handler, body: type, summary: str, *refuses: int) -> Route:
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=OPEN_BREAKER.role,
        summary=summary,
        body=body,
        answers={200: BreakerList},
        refuses=refuses,
        takes_key=True,
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/breakers",
        handle=list_breakers,
        role=Role.VIEWER,
        summary="List circuit breakers, open ones first.",
        query=BreakersQuery,
        answers={200: BreakerList},
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
