"""`/v1/freeze`: holds back new effects in all pods."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.people import Identity
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.route import Handler, Route, answer, change, read
from cortex.http.framework.shape import field, record
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import breakers as store
from cortex.view.verbs import FREEZE


@attrs.frozen(kw_only=True)
class Freeze:
    """Whether new effects are held back, in all pods."""

    is_frozen: bool
    by: str | None
    reason: str | None
    frozen_at: datetime | None
    waiting_jobs: int = field(doc=f"jobs that wait to start an effect, up to {store.COUNT_MAX:,}")


@attrs.frozen(kw_only=True)
class FreezeAct:
    """The reason."""

    reason: str = reason_field(FREEZE)


async def show_freeze(_: CheckedRequest[None, None], api: Api) -> Response:
    return answer(record(Freeze, await api.port(store.frozen)))


async def freeze_effects(request: CheckedRequest[None, FreezeAct], api: Api) -> Response:
    """Start no more effects."""
    return await _freeze(request, api, store.freeze, by=request.principal.name)


async def unfreeze_effects(request: CheckedRequest[None, FreezeAct], api: Api) -> Response:
    """Allow effects again."""
    return await _freeze(request, api, store.unfreeze, by=request.principal.identity)


async def _freeze(
    request: CheckedRequest[None, FreezeAct],
    api: Api,
    act: Callable[..., Awaitable[object]],
    *,
    by: str | Identity,
) -> Response:
    reason = request.body.reason

    async def work(db: Database) -> None:
        await act(db, by=by, reason=reason)

    operation = f"effects.{act.__name__}"
    done = await once(request, api, work, operation=operation, request={"reason": reason})
    return answer(record(Freeze, await api.port(store.frozen)), headers=headers_of(done))


def _act(path: str, handle: Handler, summary: str) -> Route:
    return change(
        FREEZE,
        path,
        handle,
        summary,
        body=FreezeAct,
        answers={200: Freeze},
        tenancy=Tenancy.INSTALLATION,
    )


ROUTES: Final = (
    read(
        "/v1/freeze",
        show_freeze,
        "Show whether effects are frozen, by whom, why, and how many jobs wait.",
        answers={200: Freeze},
        tenancy=Tenancy.INSTALLATION,
    ),
    _act(
        "/v1/freeze/on",
        freeze_effects,
        "Start no more effects, in all pods, until unfrozen; running calls finish.",
    ),
    _act(
        "/v1/freeze/off",
        unfreeze_effects,
        "Allow effects again: all jobs that wait for the freeze continue.",
    ),
)
