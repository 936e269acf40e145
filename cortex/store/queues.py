"""Worker queues: what waits in each, and pausing one: what runs goes on, nothing more is claimed.

A queue is named by its `queue_name`; None is the default one, of jobs without a queue.
"""

from collections.abc import Sequence
from typing import Any, Final

from cortex.postgres.database import Database

QUEUES_MAX: Final = 200
COUNTED_MAX: Final = 2_000
"""Of each queue and state; a list looks at no more, however long a backlog is."""


async def pause(db: Database, queue: str | None, *, by: str, reason: str) -> bool:
    """Let nothing more be claimed from a queue; False if it was paused before, and stays as it was.

    Claims that have begun may still take some. It need not have tasks yet.
    """
    return bool(await db.fetch("queues.pause", queue or "", by, reason))


async def resume(db: Database, queue: str | None, *, by: str, reason: str = "") -> bool:
    """Let a queue go on; pods are told at once. False if it was not paused."""
    return bool(await db.fetch("queues.resume", queue or "", by, reason))


async def page(
    db: Database, only: Sequence[str | None] | None = None, *, limit: int = QUEUES_MAX
) -> list[dict[str, Any]]:
    """Return queues: the default one, those that are paused, then by name those that have tasks.

    Rows have `queue`, `paused_by`, `paused_at`, `reason`; `ready`, `running` and `later` (due in
    the future) up to `COUNTED_MAX`, and `is_capped` when one of them is that; `oldest_ready_s`, for
    how long the first one has been ready, None when nothing is; `now`. With `only` those queues,
    whether they have tasks or not.
    """
    names = None if only is None else [queue or "" for queue in only]
    return [dict(row) for row in await db.fetch("queues.list", names, limit, COUNTED_MAX)]
