"""Limits of job types: declared by pods, and passed through in turns between keys."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.job_limits import JobLimit, declaration
from cortex.postgres.database import Database
from cortex.store.passes import DuePass
from cortex.store.rows import row_of, rows_of

ADMIT_BATCH: Final = 500
COUNTED_MAX: Final = 10_000
"""Places, slices and waiting jobs of one limit are counted up to this."""
STUCK_S: Final = 3600.0
STUCK_MAX: Final = 10


@attrs.frozen(kw_only=True)
class LimitRow:
    """A limit, what counts of its keys, and the number of waiting jobs."""

    name: str
    type: str
    unit: str
    """`running`, `jobs` or `tokens`."""
    per: str | None
    key: str | None
    limit_amount: int
    changed_at: datetime
    keys: int
    full_keys: int
    busiest_key: str | None
    busiest_used: int
    waiting_jobs: int
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class StuckLimit:
    """A key of a limit that has let no job through for long, although jobs wait for it."""

    name: str
    counted_for: str | None
    key: str
    held: int
    holder: UUID
    """The job that has held its place for longest."""
    still_s: float
    waiting_jobs: int
    oldest_s: float


async def declare(db: Database, limits: Mapping[str, Sequence[JobLimit]]) -> int:
    """Set the limits of these job types, none of some; return how many types changed.

    What was declared last holds for waiting jobs, too: they are let go, held or counted by other
    keys at once.
    """
    types = sorted(limits)
    specs = [orjson.dumps([declaration(each) for each in limits[name]]).decode() for name in types]
    row = await db.fetch_one("limits.declare", types, specs)
    if row is None:
        raise AssertionError("limits.declare always answers")
    return int(row["changed"])


async def admit(db: Database, *, limit: int = ADMIT_BATCH) -> DuePass:
    """Let waiting jobs of limited types through, as far as there is room.

    Safe in many pods at once: one works. After `OutcomeUnknownError` just call it again.
    """
    row = await db.fetch_one("limits.admit", limit)
    if row is None:
        raise AssertionError("limits.admit always answers")
    return row_of(DuePass, row)


async def page(db: Database, *, after: str = "", limit: int = 100) -> list[LimitRow]:
    """Return limits by name, each with what counts of its keys now."""
    return rows_of(LimitRow, await db.fetch("limits.list", after, limit, COUNTED_MAX + 1))


async def stuck(db: Database) -> list[StuckLimit]:
    """Return keys that have let no job through for `STUCK_S`, the longest first."""
    rows = await db.fetch("limits.stuck", STUCK_S, STUCK_MAX, COUNTED_MAX)
    return rows_of(StuckLimit, rows)


async def forget(db: Database, *, limit: int) -> int:
    """Delete what no longer counts; return how much."""
    row = await db.fetch_one("limits.forget", limit)
    return row["count"] if row else 0
