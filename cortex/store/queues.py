"""Worker queues: what waits in each, and whether the next job waits for the end of the one before.

A queue is named by its `queue_name`; None is the default one, of jobs without a queue.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import attrs

from cortex.postgres.database import Database
from cortex.store.rows import rows_of

QUEUES_MAX: Final = 200
COUNTED_MAX: Final = 2_000
"""Of each queue and state; a list reads no more, however long a backlog is."""


@attrs.frozen(kw_only=True)
class QueueRow:
    """A queue, and what waits in it."""

    queue: str | None
    paused_by: str | None
    paused_at: datetime | None
    reason: str | None
    is_strict: bool
    """The next job begins only when the one before has ended, not while that waits."""
    ready: int
    """This and the next two up to `COUNTED_MAX`."""
    running: int
    later: int
    """Due in the future."""
    is_capped: bool
    """One of the counts ended at `COUNTED_MAX`."""
    oldest_ready_s: float | None
    """How long the first task has been ready; None if none is."""
    now: datetime = attrs.field(eq=False)


async def make_strict(db: Database, queue: str, *, by: str, reason: str) -> bool:
    """Have the next job of a named queue wait until the one before ends; False: it did already."""
    return bool(await db.fetch("queues.make_strict", queue, by, reason))


async def make_relaxed(db: Database, queue: str, *, by: str, reason: str) -> bool:
    """Let the next job of a named queue run while the one before waits; False: it did."""
    return bool(await db.fetch("queues.make_relaxed", queue, by, reason))


async def page(
    db: Database, only: Sequence[str | None] | None = None, *, limit: int = QUEUES_MAX
) -> list[QueueRow]:
    """Return queues: the default one, the paused ones, then those that have tasks or are strict.

    With `only`, those queues, whether they have tasks or not.
    """
    names = None if only is None else [queue or "" for queue in only]
    return rows_of(QueueRow, await db.fetch("queues.list", names, limit, COUNTED_MAX))
