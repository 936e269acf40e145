"""Limits of job types: declared by pods, and passed through in turns between keys."""

from collections.abc import Mapping, Sequence

import orjson

from cortex.domain.job_limits import JobLimit, declaration
from cortex.postgres.database import Database
from cortex.store.passes import DuePass
from cortex.store.rows import row_of

ADMIT_BATCH = 500


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
