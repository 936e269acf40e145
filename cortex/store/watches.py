"""Watches: who wants the live output of which jobs' models, and sending that output.

A watcher listens on a dedicated connection, and renews its watches on the same one, so that it
detects a dead connection. Any asyncio process may do so::

    session = Dedicated(profile, on_lost=...)
    await session.open()
    await watches.listen(session, hint)
    await watches.watch(session, watcher=my_id, job_ids=[job_id])  # again each RENEW_S
    known = await watches.said(session, known)  # after each hint

A notification only hints that there is more to read: any login may send one. Behind a pooler,
listening is impossible: poll `said` without hints.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.postgres.database import Database
from cortex.postgres.dedicated import Dedicated

RENEW_S: Final = 10.0
LAPSE_S: Final = 30.0
"""Two renewals may be lost."""
CHANNEL: Final = "cortex_stream"
SAID_KEPT_S: Final = 5.0
"""Many times the interval of a watcher that polls."""
SAID_APART_S: Final = 0.05
"""Least pause between two reads of one watcher, however many hints come."""
SAID_MAX: Final = 1_000
"""Payloads at once, some 8 MB; older ones are a gap."""
FORGET_MAX: Final = 1_000


@attrs.frozen(kw_only=True)
class Watched:
    left_s: float
    asked_at: datetime
    """When its newest follower joined, which lacks earlier output."""


async def listen(session: Dedicated, on_hint: Callable[[], None]) -> None:
    """Call `on_hint` when there may be output of watched jobs. Raises as `Dedicated.listen`."""
    await session.listen(CHANNEL, lambda _: on_hint())


async def watch(
    session: Dedicated, *, watcher: UUID, job_ids: Sequence[UUID], new: Collection[UUID] = ()
) -> None:
    """Start or renew watches; notifies the pods that run the jobs. Unknown jobs are left out.

    `new`: those of the jobs with a new follower, which lacks earlier output.
    """
    await session.fetch("watches.watch", watcher, list(job_ids), LAPSE_S, list(new))


async def unwatch(session: Dedicated, *, watcher: UUID, job_ids: Sequence[UUID]) -> None:
    """End watches; notifies the pods that run the jobs."""
    await session.fetch("watches.unwatch", watcher, list(job_ids))


async def of_pod(db: Database, pod_id: UUID) -> dict[UUID, Watched]:
    """Return which of a pod's jobs are watched."""
    rows = await db.fetch("watches.of_pod", pod_id)
    return {row["job_id"]: Watched(left_s=row["left_s"], asked_at=row["asked_at"]) for row in rows}


async def send(db: Database, payloads: Sequence[str]) -> None:
    """Store the result of `cortex.domain.answer_text.payloads`, and hint at it to all listeners.

    Every send briefly takes a database-wide lock: send few, full payloads.
    """
    await db.fetch("watches.send", list(payloads))


async def said(session: Dedicated, known: Collection[int]) -> dict[int, str | None]:
    """Return the output of the last seconds, in order, by its number; None for known numbers."""
    rows = await session.fetch("watches.said", SAID_KEPT_S, list(known), SAID_MAX)
    return {row["id"]: row["payload"] for row in rows}


async def forget(db: Database, *, limit: int = FORGET_MAX) -> int:
    """Delete some of the older output; return how much."""
    return len(await db.fetch("watches.forget", 2 * SAID_KEPT_S, limit))
