"""Watches: who wants to hear what the models of which jobs say just now, and the saying of it.

A watcher listens to `STREAM` on a connection of its own, and renews its watches on the same one: so
a connection that has died in silence is found out. Any asyncio process may do so::

    session = Dedicated(profile, on_lost=...)
    await session.open()
    await session.listen(watches.STREAM, hear)  # hear: cortex.domain.answer_text.messages_of
    await watches.watch(session, watcher=my_id, job_ids=[job_id])  # again each RENEW_S

Behind a pooler nobody can listen: `said` asks for what was said, as often as one likes.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.postgres.database import Database
from cortex.postgres.dedicated import Dedicated

STREAM: Final = "cortex_stream"
RENEW_S: Final = 10.0
LAPSE_S: Final = 30.0
"""Two renewals may be lost."""
SAID_KEPT_S: Final = 5.0
"""For those who ask for it: many times what they take between two questions."""
SAID_MAX: Final = 1_000
"""Payloads at once, some 8 MB; older ones are a gap."""
FORGET_MAX: Final = 1_000


@attrs.frozen(kw_only=True)
class Watched:
    """A job that somebody watches."""

    left_s: float
    asked_at: datetime
    """When the newest one came, who lacks what was said before."""
    is_polled: bool = False
    """One of them hears no notifications."""


async def watch(
    session: Dedicated, *, watcher: UUID, job_ids: Sequence[UUID], new: Collection[UUID] = ()
) -> None:
    """Begin or renew watches; the pods that run the jobs hear of it. Unknown jobs are left out.

    `new`: those of the jobs whose watch has one more follower, who lacks what was said so far.
    """
    await session.fetch(
        "watches.watch", watcher, list(job_ids), LAPSE_S, list(new), session.is_pooled
    )


async def unwatch(session: Dedicated, *, watcher: UUID, job_ids: Sequence[UUID]) -> None:
    """End watches; the pods that run the jobs hear of it."""
    await session.fetch("watches.unwatch", watcher, list(job_ids))


async def of_pod(db: Database, pod_id: UUID) -> dict[UUID, Watched]:
    """Return which of a pod's jobs are watched."""
    rows = await db.fetch("watches.of_pod", pod_id)
    return {
        row["job_id"]: Watched(
            left_s=row["left_s"], asked_at=row["asked_at"], is_polled=row["is_polled"]
        )
        for row in rows
    }


async def send(db: Database, payloads: Sequence[str], *, is_polled: bool = False) -> None:
    """Send what `cortex.domain.answer_text.payloads` made to all who listen.

    Every send takes a lock over the whole database for a moment: few and full ones are right.
    `is_polled`: keep it for those who ask for it, too.
    """
    await db.fetch("watches.send", list(payloads), is_polled)


async def said(session: Dedicated, known: Collection[int]) -> dict[int, str | None]:
    """Return what was said in the last seconds, in order, by its number; None for what is known."""
    rows = await session.fetch("watches.said", SAID_KEPT_S, list(known), SAID_MAX)
    return {row["id"]: row["payload"] for row in rows}


async def forget(db: Database) -> int:
    """Delete some of what was said longer ago; return how much."""
    return len(await db.fetch("watches.forget", 2 * SAID_KEPT_S, FORGET_MAX))
