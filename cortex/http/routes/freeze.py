"""`/v1/freeze`: whether new effects are held back, in all pods."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Handler, Method, Route, answer
from cortex.http.framework.shape import record, told
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import breakers as store


@attrs.frozen(kw_only=True)
class Freeze:
    """Whether new effects are held back, in all pods."""

    is_frozen: bool
    by: str | None
    reason: str | None
    frozen_at: datetime | None
    waiting_jobs: int = told(doc=f"jobs that wait to begin an effect, up to {store.COUNT_MAX:,}")


@attrs.frozen(kw_only=True)
class FreezeAct:
    """Why."""

    reason: str = reason_field()


async def show_freeze(_: CheckedRequest[None, None], api: Api) -> Response:
    """Tell whether effects are frozen."""
    return answer(record(Freeze, await api.port(store.frozen)))


async def freeze_effects(asked: CheckedRequest[None, FreezeAct], api: Api) -> Response:
    """Let no effect begin."""
    return await _freeze(asked, api, store.freeze)


async def unfreeze_effects(asked: CheckedRequest[None, FreezeAct], api: Api) -> Response:
    """Let effects begin again."""
    return await _freeze(asked, api, store.unfreeze)


async def _freeze(
    asked: CheckedRequest[None, FreezeAct], api: Api, act: Callable[..., Awaitable[object]]
) -> Response:
    by, reason = asked.principal.name, asked.body.reason

    async def work(db: Database) -> None:
        await act(db, by=by, reason=reason)

    operation = f"effects.{act.__name__}"
    done = await once(asked, api, work, operation=operation, request={"reason": reason})
    return answer(record(Freeze, await api.port(store.frozen)), headers=headers_of(done))


def _act(path: str, handle: Handler, summary: str) -> Route:
    return Route(
        method=Method.POST,
        path=path,
        handle=handle,
        role=Role.OPERATOR,
        summary=summary,
        body=FreezeAct,
        answers={200: Freeze},
        takes_key=True,
    )


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/freeze",
        handle=show_freeze,
        role=Role.VIEWER,
        summary="Tell whether effects are frozen, by whom, why, and how many jobs wait.",
        answers={200: Freeze},
    ),
    _act(
        "/v1/freeze/on",
        freeze_effects,
        "Let no effect begin, in all pods, until it is over; those that began come to their end.",
    ),
    _act(
        "/v1/freeze/off",
        unfreeze_effects,
        "Let effects begin again: all jobs that wait for it go on.",
    ),
)
