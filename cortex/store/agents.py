"""Agents: named series of immutable versions."""

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of


@attrs.frozen(kw_only=True)
class AgentVersion:
    """One version of an agent."""

    name: str
    version: int
    spec: dict[str, Any]
    applied_by: str
    applied_at: datetime
    now: datetime = attrs.field(eq=False)


async def apply(
    db: Database, *, new_id: UUID, name: str, spec: dict[str, Any], by: str, reason: str = ""
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new."""
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).digest()

    async def lock_and_apply(connection: Connection) -> Record | None:
        # Only a statement that begins after the lock sees a version that another session created.
        await connection.fetch(sql("agents.lock"), name)
        return await connection.fetchrow(
            sql("agents.apply"), new_id, name, text.decode(), digest, by, reason
        )

    row = await db.transact(lock_and_apply)
    if row is None:
        raise AssertionError("agents.apply always returns one row")
    return row["version"], row["is_new"]


async def spec(db: Database, agent_id: UUID, version: int) -> dict[str, Any]:
    """Return the specification of one version. Raises `NotFoundError`."""
    row = await db.fetch_one("agents.version", agent_id, version)
    if row is None:
        raise NotFoundError(f"agent {agent_id} has no version {version}")
    specification: dict[str, Any] = orjson.loads(row["spec"])
    return specification


async def newest(db: Database, name: str) -> tuple[UUID, int]:
    """Return an agent's id and newest version. Raises `NotFoundError`."""
    row = await db.fetch_one("agents.newest", name)
    if row is None:
        raise NotFoundError(f"agent {name!r} does not exist", hint="list them: cortex agents ls")
    return row["id"], row["version"]


async def page(db: Database, *, after: str = "", limit: int = 200) -> list[AgentVersion]:
    """Return agents with their newest versions, by name."""
    return rows_of(AgentVersion, await db.fetch("agents.list", after, limit))


async def versions(db: Database, name: str, *, version: int | None = None) -> list[AgentVersion]:
    """Return an agent's versions, newest first. Raises `NotFoundError`."""
    rows = await db.fetch("agents.show", name, version)
    if not rows:
        wanted = f"agent {name!r}" if version is None else f"agent {name!r} version {version}"
        raise NotFoundError(f"{wanted} does not exist", hint="list them: cortex agents ls")
    return rows_of(AgentVersion, rows)
