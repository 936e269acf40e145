"""Jobs that wait for signals, children or decisions: gives tasks to those that have them."""

from collections.abc import Sequence
from uuid import UUID

import attrs

from cortex.domain.waits import Wait
from cortex.postgres.database import Database
from cortex.store.rows import row_of


@attrs.frozen(kw_only=True)
class Woken:
    """The result of one pass."""

    handled: int
    """Rows of the waking table."""
    woken: int
    """Jobs that got a task."""
    postponed: int
    """Rows to be handled again soon: others hold their jobs, or more jobs wait for their key."""


async def wake(db: Database, *, limit: int) -> Woken:
    """Give tasks to jobs that have what they wait for; safe in many pods at once."""
    row = await db.fetch_one("waits.wake", limit)
    if row is None:
        raise AssertionError("waits.wake always answers")
    return row_of(Woken, row)


async def met(db: Database, waits: Sequence[tuple[UUID, Wait]]) -> set[tuple[UUID, Wait]]:
    """Return those of these waits of jobs whose jobs have what they wait for."""
    fields = [each.to_json() for _, each in waits]
    rows = await db.fetch(
        "waits.met",
        [job_id for job_id, _ in waits],
        [each["kind"] for each in fields],
        [each["name"] for each in fields],
        [each.get("key") or "" for each in fields],
        [each.get("upto") for each in fields],
    )
    return {waits[row["place"] - 1] for row in rows}
