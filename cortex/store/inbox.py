"""The approvals inbox: what waits for people, looked at again and again.

Its rows are without the arguments: a request may have megabytes of them. Those are asked for once,
and again with the one request that is looked at: `approvals.show_all`.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from cortex.store.database import Database
from cortex.store.jobs import plain


async def waiting(
    db: Database, *, by: str, credential: str, also: Sequence[UUID], limit: int
) -> list[dict[str, Any]]:
    """Return requests that wait, the most urgent ones, and some by their ids; in no order.

    `is_own`: it is critical and `by`, or this credential, asked for it. `has_agreed`: this
    credential did, to these arguments.
    """
    rows = await db.fetch("inbox.waiting", limit, by, list(also), credential)
    return [plain(row) for row in rows]


async def decided(db: Database, *, limit: int) -> list[dict[str, Any]]:
    """Return requests that wait no more, the last one first."""
    return [plain(row) for row in await db.fetch("inbox.decided", limit)]


async def arguments(
    db: Database, ids: Sequence[UUID], *, chars: int
) -> list[tuple[UUID, bytes, str]]:
    """Return the id, the digest of the arguments, and those as canonical JSON.

    Of the first ones, as many as make up `chars` characters, and of one at least.
    """
    found = await db.fetch("inbox.arguments", list(ids), chars)
    return [(row["id"], row["digest"], row["text"]) for row in found]
