"""Jobs that wait for signals, children or decisions: gives tasks to those that have them."""

import attrs

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
