"""Named series of immutable specifications: what agents and flows have in common."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of


@attrs.frozen(kw_only=True)
class SpecVersion:
    """One version of a series."""

    name: str
    version: int
    spec: dict[str, Any]
    applied_by: str
    applied_at: datetime
    now: datetime = attrs.field(eq=False)


async def add(
    db: Database,
    *,
    lock: str,
    apply: str,
    key: Sequence[object],
    name: str,
    spec: dict[str, Any],
    by: str,
    reason: str,
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new.

    `lock` and `apply` are the queries of the series, `key` the first parameters of `apply`.
    """
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).digest()

    async def lock_and_apply(connection: Connection) -> Record | None:
        # Only a statement that begins after the lock sees a version that another session created.
        await connection.fetch(sql(lock), name)
        return await connection.fetchrow(sql(apply), *key, text.decode(), digest, by, reason)

    row = await db.transact(lock_and_apply)
    if row is None:
        raise AssertionError(f"{apply} always returns one row")
    return row["version"], row["is_new"]


async def versions_of(
    db: Database, query: str, name: str, *, version: int | None, noun: str
) -> list[SpecVersion]:
    """Return the versions of one series, newest first. Raises `NotFoundError`."""
    rows = await db.fetch(query, name, version)
    if not rows:
        wanted = f"{noun} {name!r}" if version is None else f"{noun} {name!r} version {version}"
        raise NotFoundError(f"{wanted} does not exist", hint=f"list them: cortex {noun}s ls")
    return rows_of(SpecVersion, rows)
