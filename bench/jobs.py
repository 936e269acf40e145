"""Jobs of a measurement: many at once, in any state, and changes of the running ones.

For temporary databases; the role must own the tables.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.postgres.database import Database

AGENTS: Final = 20
RUNNING: Final = 200
BATCH: Final = 5_000
"""Rows per statement: a quarter of a second each, well below the limit of five when busy."""


async def fill(db: Database, count: int) -> None:
    """Create jobs with the ids 1 to `count`, a second apart; the `RUNNING` newest run.

    Of each thousand others one is FAILED, one CANCELLED, one waits for a RETRY; the rest are
    COMPLETED.
    """
    await db.fetch("bench.agents", AGENTS)
    await db.fetch("bench.without_rules")
    for first in range(1, count + 1, BATCH):
        last = min(count, first + BATCH - 1)
        await db.fetch("bench.jobs", first, last, count, RUNNING, AGENTS)
    await db.fetch("bench.with_rules")


async def fill_finished(db: Database, count: int) -> None:
    """Create finished jobs with the ids 1 to `count`, with their history; one in 100 is FAILED."""
    await db.fetch("bench.without_rules")
    for first in range(1, count + 1, BATCH):
        last = min(count, first + BATCH - 1)
        await db.fetch("bench.finished", first, last, count)
    await db.fetch("bench.with_rules")


async def advance(
    db: Database, ids: Sequence[UUID], numbers: Sequence[int], *, is_notified: bool
) -> None:
    """Set the step counts of running jobs to these numbers; `is_notified`: with a hint for each."""
    await db.fetch("bench.advance", ids, numbers, is_notified)


async def transactions(db: Database) -> int:
    """Return the number of transactions on the database, except this session's last one.

    Other sessions report theirs with a delay of at most a second.
    """
    await db.fetch("bench.transactions")  # makes this session report its own
    (row,) = await db.fetch("bench.transactions")
    return int(row["count"])
