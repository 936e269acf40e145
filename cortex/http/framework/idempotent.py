"""Writes under an `Idempotency-Key`: repeated requests write once and get the same response."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.responses import Response

from cortex.crash_points import crash_point
from cortex.domain.idempotency import request_digest
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer
from cortex.postgres.database import Database
from cortex.store.idempotency import GuardedResponse, guarded, unguarded

_REPLAYED = {"Idempotent-Replayed": "true"}


async def mutate(
    requested: CheckedRequest[Any, Any],
    api: Api,
    work: Callable[[Database], Awaitable[object]],
    *,
    operation: str,
    request: Mapping[str, Any],
    status: int = 200,
) -> Response:
    """Write and answer with the response as JSON stores it, the same with and without a key.

    `request` is everything the caller asked for, and nothing generated here; the caller is added,
    so that no one sees the response to another caller's key. Under a key, `work` runs in one
    transaction and may run again. Raises the errors of `work`; with a key also `KeyPendingError`,
    `KeyReusedError`.
    """
    done = await once(requested, api, work, operation=operation, request=request)
    return answer(done.response, status=status, headers=headers_of(done))


async def once(
    requested: CheckedRequest[Any, Any],
    api: Api,
    work: Callable[[Database], Awaitable[object]],
    *,
    operation: str,
    request: Mapping[str, Any],
) -> GuardedResponse:
    """Write as `mutate` does, for handlers with a response of their own."""
    whole = {**request, "by": requested.principal.name}
    crash_point("before_act")
    if requested.key is None:
        done = await api.port(unguarded, work)
    else:
        digest = await api.apart(partial(request_digest, operation, whole), size=requested.size)
        done = await api.port(
            guarded,
            requested.key,
            operation=operation,
            digest=digest,
            work=work,
            tenant=requested.principal.tenant,
        )
    crash_point("after_act")
    return done


def headers_of(done: GuardedResponse) -> dict[str, str]:
    """Return the headers that show whether this request did the write."""
    return _REPLAYED if done.is_replayed else {}
