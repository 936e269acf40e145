"""Agents and flows: named series of immutable, versioned specifications."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of

LATEST_CALLS: Final = 50
"""Of each agent, that its figures are from: a list costs no more."""
MISSING_CALLS_MIN: Final = 20
MISSING_SHARE_MAX: Final = 0.3
"""Of the prompts of these calls; agents that keep their prompts read 0.8 and more."""


class SpecKind(StrEnum):
    """The kind of a series: jobs refer to agents by id, to flows by name."""

    AGENT = "agent"
    FLOW = "flow"

    @property
    def plural(self) -> str:
        return f"{self}s"


@attrs.frozen(kw_only=True)
class SpecVersion:
    """One version of a series."""

    name: str
    version: int
    spec: dict[str, Any]
    applied_by: str
    applied_at: datetime
    now: datetime = attrs.field(eq=False)
    cache_hit: float | None = attrs.field(eq=False)
    """The share of an agent's latest prompts that was read from the cache: see `with_caching`."""
    cache_saved_usd: Decimal | None = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class _CacheUse:
    name: str
    hit: float | None
    saved_usd: Decimal | None


@attrs.frozen(kw_only=True)
class CacheMiss:
    """An agent whose prompts are written to the cache and hardly read from it."""

    name: str
    calls: int
    """Those that could have read: not the first of their jobs."""
    share: float
    """How much of their prompts was read."""


@attrs.frozen(kw_only=True)
class _Queries:
    apply: str
    one: str
    page: str
    versions: str


_QUERIES: Final[Mapping[SpecKind, _Queries]] = MappingProxyType(
    {
        SpecKind.AGENT: _Queries(
            apply="specs.apply_agent",
            one="specs.agent_version",
            page="specs.agents",
            versions="specs.agent_versions",
        ),
        SpecKind.FLOW: _Queries(
            apply="specs.apply_flow",
            one="specs.flow_version",
            page="specs.flows",
            versions="specs.flow_versions",
        ),
    }
)


async def apply(
    db: Database,
    kind: SpecKind,
    *,
    name: str,
    spec: dict[str, Any],
    by: str,
    credential: str | None = None,
    reason: str = "",
    new_id: UUID | None = None,
) -> tuple[int, bool]:
    """Add a version unless the newest is the same; return the version and whether it is new.

    A new agent gets `new_id`; flows have no id.
    """
    key = (new_id, name) if kind is SpecKind.AGENT else (name,)
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).digest()
    query = _QUERIES[kind].apply

    async def lock_and_apply(connection: Connection) -> Record | None:
        # Only a statement that begins after the lock sees a version that another session created.
        await connection.fetch(sql("specs.lock"))
        return await connection.fetchrow(
            sql(query), *key, text.decode(), digest, by, reason, credential
        )

    row = await db.transact(lock_and_apply)
    if row is None:
        raise AssertionError(f"{query} always returns one row")
    return row["version"], row["is_new"]


async def spec(db: Database, kind: SpecKind, series: UUID | str, version: int) -> dict[str, Any]:
    """Return a specification by an agent's id or a flow's name. Raises `NotFoundError`."""
    row = await db.fetch_one(_QUERIES[kind].one, series, version)
    if row is None:
        shown = repr(series) if isinstance(series, str) else series
        raise NotFoundError(f"{kind} {shown} has no version {version}")
    specification: dict[str, Any] = orjson.loads(row["spec"])
    return specification


async def newest_agent(db: Database, name: str) -> tuple[UUID, int]:
    """Return an agent's id and newest version. Raises `NotFoundError`."""
    row = await db.fetch_one("specs.newest_agent", name)
    if row is None:
        raise NotFoundError(f"agent {name!r} does not exist", hint="list them: cortex agents ls")
    return row["id"], row["version"]


async def page(
    db: Database, kind: SpecKind, *, after: str = "", limit: int = 200
) -> list[SpecVersion]:
    """Return agents or flows with their newest versions, by name."""
    return _versions(await db.fetch(_QUERIES[kind].page, after, limit))


async def agents_with_caching(
    db: Database, *, after: str = "", limit: int = 200, tenant: str | None = None
) -> list[SpecVersion]:
    """Return agents with their newest versions and the figures of `with_caching`, by name."""
    rows = await page(db, SpecKind.AGENT, after=after, limit=limit)
    return await with_caching(db, rows, tenant=tenant)


async def with_caching(
    db: Database, rows: Sequence[SpecVersion], *, tenant: str | None = None
) -> list[SpecVersion]:
    """Return agents with what their latest calls read from the provider's cache, of all versions.

    `tenant`: only its model calls count; all tenants share the agents.
    """
    names, whose = sorted({row.name for row in rows}), tenant or db.tenant
    if not names:
        return []
    uses = rows_of(_CacheUse, await db.fetch("specs.cache_uses", names, LATEST_CALLS, whose))
    of = {each.name: each for each in uses}
    return [
        attrs.evolve(row, cache_hit=use.hit, cache_saved_usd=use.saved_usd)
        if (use := of.get(row.name)) is not None
        else row
        for row in rows
    ]


async def cache_misses(db: Database) -> list[CacheMiss]:
    """Return the agents whose prompts change from call to call, the worst first."""
    rows = await db.fetch("specs.cache_misses", MISSING_CALLS_MIN, MISSING_SHARE_MAX, db.tenant)
    return rows_of(CacheMiss, rows)


async def versions(
    db: Database, kind: SpecKind, name: str, *, version: int | None = None
) -> list[SpecVersion]:
    """Return the versions of one series, newest first. Raises `NotFoundError`."""
    rows = await db.fetch(_QUERIES[kind].versions, name, version)
    if not rows:
        wanted = f"{kind} {name!r}" if version is None else f"{kind} {name!r} version {version}"
        raise NotFoundError(f"{wanted} does not exist", hint=f"list them: cortex {kind.plural} ls")
    return _versions(rows)


def _versions(rows: Sequence[Record]) -> list[SpecVersion]:
    return rows_of(SpecVersion, rows, cache_hit=None, cache_saved_usd=None)
