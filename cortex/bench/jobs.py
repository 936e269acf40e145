"""Jobs of a measurement: many of them at once, in any state, and changes of those that run.

For databases that are thrown away afterwards; the role must own the tables.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.postgres.database import Database

AGENTS: Final = 20
RUNNING: Final = 200
BATCH: Final = 5_000
"""Rows a statement: a quarter of a second; on a machine that is busy with others, too, less than
the five that one may take."""


async def fill(db: Database, count: int) -> None:
    """Make jobs with the ids 1 to `count`, a second apart; the `RUNNING` newest run.

    Of a thousand others one FAILED, one was CANCELLED, one waits for a RETRY; the rest COMPLETED.
    """
    await db.fetch("bench.agents", AGENTS)
    await db.fetch("bench.without_rules")
    for first in range(1, count + 1, BATCH):
        last = min(count, first + BATCH - 1)
        await db.fetch("bench.jobs", first, last, count, RUNNING, AGENTS)
    await db.fetch("bench.with_rules")


async def advance(
    db: Database, ids: Sequence[UUID], numbers: Sequence[int], *, is_told: bool
) -> None:
    """Let running jobs show these numbers as their steps; `is_told`: with a hint for each."""
    await db.fetch("bench.advance", ids, numbers, is_told)


async def transactions(db: Database) -> int:
    """Return how many transactions the database has seen, this session's last one aside.

    Of other sessions those are missing that they have not told yet: of the last second at most.
    """
    await db.fetch("bench.transactions")  # makes this session tell its own
    (row,) = await db.fetch("bench.transactions")
    return int(row["count"])
