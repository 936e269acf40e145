"""Agents: named series of immutable versions."""

from typing import Any
from uuid import UUID

import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Database
from cortex.store import spec_versions
from cortex.store.rows import rows_of
from cortex.store.spec_versions import SpecVersion


async def apply(
    db: Database, *, new_id: UUID, name: str, spec: dict[str, Any], by: str, reason: str = ""
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new."""
    return await spec_versions.add(
        db,
        lock="agents.lock",
        apply="agents.apply",
        key=(new_id, name),
        name=name,
        spec=spec,
        by=by,
        reason=reason,
    )


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


async def page(db: Database, *, after: str = "", limit: int = 200) -> list[SpecVersion]:
    """Return agents with their newest versions, by name."""
    return rows_of(SpecVersion, await db.fetch("agents.list", after, limit))


async def versions(db: Database, name: str, *, version: int | None = None) -> list[SpecVersion]:
    """Return an agent's versions, newest first. Raises `NotFoundError`."""
    return await spec_versions.versions_of(db, "agents.show", name, version=version, noun="agent")
