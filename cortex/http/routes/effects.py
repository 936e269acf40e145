"""`/v1/effects`: external effects of jobs, and the resolution of unknown outcomes."""

from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.canonical import canonical
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import UsageError
from cortex.domain.limits import CHECKPOINT
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import NEXT_CURSOR, cursor_field, cursor_of, id_of, limit_field
from cortex.http.framework.idempotent import headers_of, once
from cortex.http.framework.resource import (
    document_of,
    page_of,
    schema_of_page,
    schema_of_rows,
)
from cortex.http.framework.route import UUID_PARAM, answer, change, read
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store import effects as store
from cortex.store.tenants import Kind
from cortex.view.resources.effects import EFFECT, EFFECTS
from cortex.view.verbs import RESOLVE_EFFECT

TOOL_MAX: Final = 200
EFFECT_PATH: Final = "/v1/effects/{effect_id}"
EFFECT_PARAMS: Final = {"effect_id": UUID_PARAM}


@attrs.frozen(kw_only=True)
class EffectsQuery:
    """Selects effects, the newest first."""

    status: list[EffectStatus] = field(doc="[all]", factory=list)
    tool: str | None = text(doc="of this tool", length_min=1, length_max=TOOL_MAX, default=None)
    job_id: UUID | None = field(doc="of this job", default=None)
    cursor: str | None = cursor_field()
    limit: int = limit_field()


async def list_effects(request: CheckedRequest[EffectsQuery, None], api: Api) -> Response:
    query, before = request.query, id_of(request.query.cursor)
    if before is not None:
        await require_own(api.port, request.principal, Kind.EFFECT, [before])
    rows = await api.port(
        store.page,
        statuses=tuple(dict.fromkeys(query.status)) or tuple(EffectStatus),
        tool=query.tool,
        job_id=query.job_id,
        before=before,
        limit=query.limit + 1,
        tenant=request.tenant,
    )
    shown = rows[: query.limit]
    next_cursor = cursor_of(shown[-1].id) if len(rows) > query.limit else None
    return answer(page_of(EFFECTS, shown, next_cursor=next_cursor))


async def show_effect(request: CheckedRequest[None, None], api: Api) -> Response:
    row = await api.port(store.show, request.path["effect_id"])
    return answer(document_of(EFFECT, row))


# --- resolution by a person


@attrs.frozen(kw_only=True)
class EffectResolve:
    """The outcome of the effect, and the evidence for it."""

    resolution: Resolution
    reason: str = reason_field(RESOLVE_EFFECT)
    result: Any = field(doc="the returned value, if it was applied", default=None)


async def resolve_effect(requested: CheckedRequest[None, EffectResolve], api: Api) -> Response:
    """Record a person's resolution of an unknown effect."""
    effect_id, by, body = requested.path["effect_id"], requested.principal.identity, requested.body
    result = _result(body)

    async def work(db: Database) -> store.EffectResolved:
        return await store.resolve_and_show(
            db, effect_id, body.resolution, by=by, reason=body.reason, result=result
        )

    request = {"effect": effect_id, "resolution": body.resolution, "result": result}
    done = await once(
        requested, api, work, operation="effects.resolve", request=request | {"reason": body.reason}
    )
    return answer(done.response, headers=headers_of(done))


def _result(body: EffectResolve) -> str | None:
    if body.result is None:
        return None
    if body.resolution is not Resolution.APPLIED:
        raise UsageError("only an applied effect has a result")
    result = canonical(body.result, what="result")
    CHECKPOINT.check(len(result.encode()), what="result")
    return result


ROUTES: Final = (
    read(
        "/v1/effects",
        list_effects,
        "List effects, the newest first.",
        query=EffectsQuery,
        answers={
            200: schema_of_page(
                EFFECTS, doc="A page of effects, the newest first.", next_cursor=NEXT_CURSOR
            )
        },
        tenancy=Tenancy.FILTERED,
    ),
    read(
        EFFECT_PATH,
        show_effect,
        "Show everything recorded about an effect.",
        params=EFFECT_PARAMS,
        answers={200: schema_of_rows(EFFECT)},
        refuses=(404,),
        tenancy=Tenancy.EFFECT,
    ),
    change(
        RESOLVE_EFFECT,
        f"{EFFECT_PATH}/resolve",
        resolve_effect,
        "Record whether an unknown effect was applied; a waiting job continues.",
        params=EFFECT_PARAMS,
        body=EffectResolve,
        answers={200: store.EffectResolved},
        refuses=(404, 409),
        tenancy=Tenancy.EFFECT,
    ),
)
