"""Flows: named series of immutable versions."""

from typing import Any

import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Database
from cortex.store import spec_versions
from cortex.store.rows import rows_of
from cortex.store.spec_versions import SpecVersion


async def apply(
    db: Database, *, name: str, spec: dict[str, Any], by: str, reason: str = ""
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new."""
    return await spec_versions.add(
        db,
        lock="flows.lock",
        apply="flows.apply",
        key=(name,),
        name=name,
        spec=spec,
        by=by,
        reason=reason,
    )


async def spec(db: Database, name: str, version: int) -> dict[str, Any]:
    """Return the specification of one version. Raises `NotFoundError`."""
    row = await db.fetch_one("flows.version", name, version)
    if row is None:
        raise NotFoundError(f"flow {name!r} has no version {version}")
    specification: dict[str, Any] = orjson.loads(row["spec"])
    return specification


async def page(db: Database, *, after: str = "", limit: int = 200) -> list[SpecVersion]:
    """Return flows with their newest versions, by name."""
    return rows_of(SpecVersion, await db.fetch("flows.list", after, limit))


async def versions(db: Database, name: str, *, version: int | None = None) -> list[SpecVersion]:
    """Return a flow's versions, newest first. Raises `NotFoundError`."""
    return await spec_versions.versions_of(db, "flows.show", name, version=version, noun="flow")
