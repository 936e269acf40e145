"""Writes under an `Idempotency-Key`: asked for again, they are done once and told again."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.responses import Response

from cortex.domain.idempotency import request_digest
from cortex.durable.crash_points import crash_point
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import answer
from cortex.postgres.database import Database
from cortex.store.idempotency import GuardedResponse, guarded, unguarded

_REPLAYED = {"Idempotent-Replayed": "true"}


async def mutate(
    asked: CheckedRequest[Any, Any],
    api: Api,
    work: Callable[[Database], Awaitable[object]],
    *,
    operation: str,
    request: Mapping[str, Any],
    status: int = 200,
) -> Response:
    """Do a write and answer with its response as JSON keeps it, the same with a key and without.

    `request`: all that was asked for, nothing that was made here; who asks is added, so that
    nobody is told what another one's key led to. Under a key `work` runs in one transaction and may
    be run again. Raises what `work` raises; with a key also `KeyPendingError`, `KeyReusedError`.
    """
    done = await once(asked, api, work, operation=operation, request=request)
    return answer(done.response, status=status, headers=headers_of(done))


async def once(
    asked: CheckedRequest[Any, Any],
    api: Api,
    work: Callable[[Database], Awaitable[object]],
    *,
    operation: str,
    request: Mapping[str, Any],
) -> GuardedResponse:
    """Do a write as `mutate` does, for handlers that answer something else than its response."""
    whole = {**request, "by": asked.principal.name}
    crash_point("before_act")
    if asked.key is None:
        done = await api.port(unguarded, work)
    else:
        digest = await api.apart(partial(request_digest, operation, whole), size=asked.size)
        done = await api.port(guarded, asked.key, operation=operation, digest=digest, work=work)
    crash_point("after_act")
    return done


def headers_of(done: GuardedResponse) -> dict[str, str]:
    """Return the headers that say whether it was done now."""
    return _REPLAYED if done.is_replayed else {}
