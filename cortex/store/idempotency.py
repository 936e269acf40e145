"""Idempotency keys: a write that is requested twice with one key happens once.

The key's row, and everything that it guards, are written in one transaction: after a kill at any
point, either both exist or neither. Meanwhile the key's advisory lock is held; it ends with its
connection.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import orjson

from cortex.domain.errors import CortexError, KeyReusedError
from cortex.domain.idempotency import (
    KEY_TTL_S,
    PERMANENT,
    KeyPendingError,
    canonical,
    checked_key,
    error_document,
    error_from,
    response_json,
)
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql

Work = Callable[[Database], Awaitable[object]]


@attrs.frozen(kw_only=True)
class GuardedResponse:
    """The result of a guarded write."""

    response: Any
    """As JSON stores it: ids, instants and money are text."""
    is_replayed: bool
    """It was done before; this time nothing was."""


async def guarded(
    db: Database, key: str, *, operation: str, digest: bytes, work: Work, tenant: str | None = None
) -> GuardedResponse:
    """Do `work` unless it was done with this key, in one transaction with the key.

    `work` gets a `Database` whose calls are part of that transaction; it may run again after a
    deadlock. `digest` is the `request_digest` of the whole request, which takes a while for a large
    one. Callers of one `tenant` have keys of their own. Safe to repeat after `OutcomeUnknownError`.
    A permanent error of `work` undoes it, is stored with the key and raised again for it; any other
    error frees the key. Raises `KeyPendingError` while the key is in use, `KeyReusedError` if it
    was used for another request, `UsageError` for an invalid key.
    """
    name = checked_key(key)
    tenant = tenant or db.tenant
    scope = "" if tenant is None else f"tenant:{tenant}"

    async def once(connection: Connection) -> GuardedResponse | CortexError:
        began = await connection.fetchrow(
            sql("idempotency.begin"), name, digest, operation, KEY_TTL_S, scope
        )
        if began is None or not began["is_held"]:
            return KeyPendingError(
                f"a request with key {key!r} is in progress", hint="try again in a moment"
            )
        if began["is_new"]:
            return await _do(db, connection, key=name, scope=scope, work=work)
        row = await connection.fetchrow(sql("idempotency.stored"), name, scope)
        return _replay(row, key=name, digest=digest)

    # An error raised inside a transaction costs its connection: these are returned like results.
    answer = await db.transact(once)
    if isinstance(answer, CortexError):
        raise answer
    return answer


async def unguarded(db: Database, work: Work) -> GuardedResponse:
    """Do `work` without a key; the response has the same shape."""
    text = canonical(await work(db), what="response")  # of any size: it has been done
    return GuardedResponse(response=orjson.loads(text), is_replayed=False)


async def sweep(db: Database, *, limit: int) -> int:
    """Delete keys that have expired; return how many, at most `limit`."""
    row = await db.fetch_one("idempotency.sweep", limit)
    return row["count"] if row else 0


async def sweep_rules(db: Database, *, limit: int) -> int:
    """Delete what rules about submits keep of ended jobs; return how many it looked at."""
    row = await db.fetch_one("idempotency.sweep_rules", limit)
    return row["count"] if row else 0


async def _do(
    db: Database, connection: Connection, *, key: str, scope: str, work: Work
) -> GuardedResponse | CortexError:
    try:
        async with connection.transaction():  # a savepoint: a failure undoes the work, not the key
            response = response_json(await work(db.bound(connection)))
    except PERMANENT as error:
        document = canonical(error_document(error), what="error")
        await connection.execute(sql("idempotency.fail"), key, document, scope)
        return error
    kept = await connection.fetchval(sql("idempotency.complete"), key, response, scope)
    return GuardedResponse(response=orjson.loads(kept), is_replayed=False)


def _replay(row: Record | None, *, key: str, digest: bytes) -> GuardedResponse | CortexError:
    if row is None:
        raise AssertionError("a key that was not free has a row, locked by idempotency.begin")
    if row["digest"] != digest:
        return KeyReusedError(
            f"key {key!r} was used for another request: {row['operation']}",
            hint="give each request a key of its own",
        )
    if row["error"] is None:
        return GuardedResponse(response=orjson.loads(row["response"]), is_replayed=True)
    error = error_from(orjson.loads(row["error"]))
    kept = "that was its first answer too: to try it anew, take another key"
    return type(error)(error.message, hint=f"{error.hint}; {kept}" if error.hint else kept)
