"""Quotas: how often, or for how much, the effects of a tool may begin. An intent takes from them.

Jobs that wait for one continue by themselves when it is raised or removed: see `retries.due`.
"""

from datetime import datetime
from decimal import Decimal

import attrs

from cortex.domain.errors import NotFoundError, UsageError
from cortex.domain.job import DEFAULT_TENANT
from cortex.domain.quota import Period, Quota
from cortex.postgres.database import Database, Record
from cortex.store.rows import row_of, rows_of


@attrs.frozen(kw_only=True)
class QuotaChange:
    """The effect of a person's change of a quota."""

    name: str
    before: Decimal | None
    """The limit; None if there was none."""
    after: Decimal | None
    """None if it was removed."""


@attrs.frozen(kw_only=True)
class QuotaRow:
    """A quota, its current usage, and the number of waiting jobs."""

    name: str
    tool: str
    argument: str | None
    unit: str | None
    period: Period = attrs.field(converter=Period)
    limit_amount: Decimal
    changed_by: str
    changed_at: datetime
    reason: str
    created_at: datetime
    used: Decimal
    resets_at: datetime
    waiting_jobs: int
    now: datetime = attrs.field(eq=False)

    @property
    def quota(self) -> Quota:
        """Its limit as a value."""
        return Quota(
            tool=self.tool,
            argument=self.argument,
            unit=self.unit,
            period=self.period,
            limit=self.limit_amount,
        )


async def put(db: Database, quota: Quota, *, by: str, reason: str) -> QuotaChange:
    """Set a quota, new or not. The usage of an existing one stays counted; a new one has none."""
    row = await db.fetch_one(
        "quotas.put",
        quota.tool,
        quota.argument,
        quota.unit,
        quota.period.value,
        quota.limit,
        by,
        reason,
    )
    if row is None:
        raise AssertionError("quotas.put always returns one row")
    return _change(row)


async def remove(db: Database, name: str, *, by: str, reason: str) -> QuotaChange:
    """Remove a quota and its usage. Raises `NotFoundError`."""
    row = await db.fetch_one("quotas.remove", name, by, reason)
    if row is None:
        raise NotFoundError(f"quota {name!r} does not exist", hint="list them: cortex quotas ls")
    return _change(row)


async def page(db: Database, *, after: str = "", limit: int = 100) -> list[QuotaRow]:
    """Return quotas by name, each with its current usage and the number of waiting jobs."""
    return rows_of(QuotaRow, await db.fetch("quotas.list", after, limit))


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete usage of hours and days that began this many seconds ago; return how many."""
    row = await db.fetch_one("quotas.forget", kept_s, limit)
    return row["count"] if row else 0


# --- caps of tenants


@attrs.frozen(kw_only=True)
class Cap:
    """How many jobs of a tenant may be unfinished, and how many bytes their payloads."""

    tenant: str
    jobs_max: int
    bytes_max: int | None


@attrs.frozen(kw_only=True)
class CapRow:
    """A cap, and what counts towards it; counted no further than the cap of jobs."""

    name: str
    """The tenant."""
    jobs: int
    jobs_max: int
    bytes: int
    bytes_max: int | None
    changed_by: str
    changed_at: datetime
    reason: str
    now: datetime = attrs.field(eq=False)


async def cap(
    db: Database, tenant: str, *, jobs_max: int, bytes_max: int | None, by: str, reason: str
) -> Cap:
    """Set the cap of a tenant, new or not. Raises `UsageError` for the default tenant."""
    if tenant == DEFAULT_TENANT:
        raise UsageError(
            f"the tenant {DEFAULT_TENANT} has no cap", hint="submit jobs to cap for another tenant"
        )
    row = await db.fetch_one("quotas.cap", tenant, jobs_max, bytes_max, by, reason)
    if row is None:
        raise AssertionError("quotas.cap always returns one row")
    return row_of(Cap, row)


async def uncap(db: Database, tenant: str, *, by: str, reason: str) -> Cap:
    """Remove the cap of a tenant. Raises `NotFoundError`."""
    row = await db.fetch_one("quotas.uncap", tenant, by, reason)
    if row is None:
        raise NotFoundError(f"tenant {tenant!r} has no cap", hint="list them: cortex quotas caps")
    return row_of(Cap, row)


async def caps(
    db: Database, *, after: str = "", limit: int = 100, tenant: str | None = None
) -> list[CapRow]:
    """Return the caps of tenants by name, or that of one."""
    return rows_of(CapRow, await db.fetch("quotas.caps", after, limit, tenant or db.tenant))


def _change(row: Record) -> QuotaChange:
    return QuotaChange(name=row["name"], before=row["before"], after=row.get("after"))
