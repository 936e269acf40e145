"""Pauses of everything, a job type, a tenant, a queue or a job, and the line of ready tasks.

A pause keeps jobs from starting; those that run end their attempt.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.database import Database
from cortex.store.rows import rows_of
from cortex.store.tenants import Kind, owned

PAUSES_MAX: Final = 1_000
PARK_BATCH: Final = 1_000
AT_ONCE_MAX: Final = 200
"""Batches that a person's change moves itself; the rest is left to the pods."""
AGE_S: Final = 600.0
AGE_EVERY_S: Final = 60.0
"""A task that has been ready for `AGE_S` rises by one priority in each period of this length."""


@attrs.frozen(kw_only=True)
class PauseRow:
    """A pause: what does not start now, since when, and why."""

    kind: PauseKind
    name: str
    paused_by: str
    paused_at: datetime
    reason: str
    held: int
    """Due tasks that it has set aside, for tenants and jobs; up to 10,000."""
    now: datetime = attrs.field(eq=False)

    @property
    def target(self) -> Pausable:
        return Pausable(self.kind, self.name)


async def page(
    db: Database,
    only: Pausable | None = None,
    *,
    tenant: str | None = None,
    limit: int = PAUSES_MAX,
) -> list[PauseRow]:
    """Return pauses, the latest first; with a tenant, its own and those of its jobs.

    Without those of jobs that have ended: the next `unpark` removes these.
    """
    kinds = None if only is None else [only.kind.value]
    names = None if only is None else [only.name]
    return rows_of(
        PauseRow, await db.fetch("pauses.list", kinds, names, tenant or db.tenant, limit)
    )


async def pause(
    db: Database, target: Pausable, *, by: str, reason: str, tenant: str | None = None
) -> bool:
    """Keep jobs from starting; False if that was paused already, which stays unchanged.

    Claims in progress may still take some. Raises `NotFoundError` for a job that does not exist or
    has ended, and for a type or tenant that nobody has heard of; a queue need not exist. Raises
    `ForbiddenError` for what is not of the caller's tenant alone.
    """
    await _require_own(db, target, tenant or db.tenant)
    row = await db.fetch_one("pauses.known", target.kind.value, target.name)
    if row is None or not row["is_known"]:
        raise NotFoundError(_UNKNOWN[target.kind].format(target.name), hint=_HINTS[target.kind])
    is_new = bool(await db.fetch("pauses.add", target.kind.value, target.name, by, reason))
    for _ in range(AT_ONCE_MAX):
        if await park(db) < PARK_BATCH:
            break
    return is_new


async def resume(
    db: Database, target: Pausable, *, by: str, reason: str = "", tenant: str | None = None
) -> bool:
    """Let jobs start again; pods are notified at once. False if that was not paused.

    Raises `ForbiddenError` for what is not of the caller's tenant alone.
    """
    await _require_own(db, target, tenant or db.tenant)
    was_paused = await db.fetch("pauses.remove", target.kind.value, target.name, by, reason)
    for _ in range(AT_ONCE_MAX):
        if await unpark(db) < PARK_BATCH:
            break
    return bool(was_paused)


async def _require_own(db: Database, target: Pausable, tenant: str | None) -> None:
    if tenant is None or target == Pausable(PauseKind.TENANT, tenant):
        return
    if target.kind is PauseKind.JOB:
        job_id = UUID(target.name)
        if job_id in await owned(db, Kind.JOB, [job_id], tenant=tenant):
            return
        raise NotFoundError(f"job {job_id} does not exist for tenant {tenant}")
    raise ForbiddenError(
        f"tenant {tenant} may not pause or resume {target.words}",
        hint=f"name what is its own: tenant:{tenant}, or job:ID",
    )


async def park(db: Database) -> int:
    """Set aside ready tasks of paused tenants and jobs; return how many."""
    row = await db.fetch_one("pauses.park", PARK_BATCH)
    return row["count"] if row else 0


async def unpark(db: Database) -> int:
    """Make tasks due again whose pause is over; return how many. Ends the pauses of ended jobs."""
    row = await db.fetch_one("pauses.unpark", PARK_BATCH)
    return row["count"] if row else 0


async def age(db: Database, *, limit: int) -> int:
    """Raise the priority of tasks that have been ready for long; return how many."""
    row = await db.fetch_one("pauses.age", AGE_S, limit, AGE_EVERY_S)
    return row["count"] if row else 0


_UNKNOWN: Final = {
    PauseKind.TYPE: "no pod has had a job type {!r}",
    PauseKind.TENANT: "no job or cap is of tenant {!r}",
    PauseKind.JOB: "job {} does not exist, or has ended",
}
_HINTS: Final = {
    PauseKind.TYPE: "list them: cortex jobs types",
    PauseKind.TENANT: "list its jobs: cortex jobs ls tenant:NAME",
    PauseKind.JOB: "list them: cortex jobs ls",
}
