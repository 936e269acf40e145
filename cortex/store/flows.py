"""Flows: named series of immutable versions."""

import hashlib
from datetime import datetime
from typing import Any

import attrs
import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of


@attrs.frozen(kw_only=True)
class FlowVersion:
    """One version of a flow."""

    name: str
    version: int
    spec: dict[str, Any]
    applied_by: str
    applied_at: datetime
    now: datetime = attrs.field(eq=False)


async def apply(
    db: Database, *, name: str, spec: dict[str, Any], by: str, reason: str = ""
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new."""
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).digest()

    async def lock_and_apply(connection: Connection) -> Record | None:
        # Only a statement that begins after the lock sees a version that another session created.
        await connection.fetch(sql("flows.lock"), name)
        return await connection.fetchrow(
            sql("flows.apply"), name, text.decode(), digest, by, reason
        )

    row = await db.transact(lock_and_apply)
    if row is None:
        raise AssertionError("flows.apply always returns one row")
    return row["version"], row["is_new"]


async def spec(db: Database, name: str, version: int) -> dict[str, Any]:
    """Return the specification of one version. Raises `NotFoundError`."""
    row = await db.fetch_one("flows.version", name, version)
    if row is None:
        raise NotFoundError(f"flow {name!r} has no version {version}")
    specification: dict[str, Any] = orjson.loads(row["spec"])
    return specification


async def page(db: Database, *, after: str = "", limit: int = 200) -> list[FlowVersion]:
    """Return flows with their newest versions, by name."""
    return rows_of(FlowVersion, await db.fetch("flows.list", after, limit))


async def versions(db: Database, name: str, *, version: int | None = None) -> list[FlowVersion]:
    """Return a flow's versions, newest first. Raises `NotFoundError`."""
    rows = await db.fetch("flows.show", name, version)
    if not rows:
        wanted = f"flow {name!r}" if version is None else f"flow {name!r} version {version}"
        raise NotFoundError(f"{wanted} does not exist", hint="list them: cortex flows ls")
    return rows_of(FlowVersion, rows)
