"""Requests to drain a pod: it takes no more jobs, hands back those that it runs, and stays.

The request is stored in the pod's row; the pod reads it there, or gets a notification.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.drain import Moved, MovedGroup
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.postgres.database import Database
from cortex.store.pods import PodRow
from cortex.store.rows import rows_of

DIGITS_MIN: Final = 4
NAMED_MAX: Final = 10
HANDED_BACK_MAX: Final = 10_001
"""More than a pod may have slots: it includes everything that it ran when the request came."""
_HINT: Final = "list them: cortex pods ls"


async def find(db: Database, reference: str) -> UUID:
    """Return the living pod with a name, or with the beginning or end of an id.

    Raises `NotFoundError` for none and for several: a drain never hits a pod by accident.
    """
    digits = reference.strip().lstrip("…~").lower().replace("-", "")
    is_id = len(digits) >= DIGITS_MIN and set(digits) <= set("0123456789abcdef")
    rows = await db.fetch("drains.named", reference, digits if is_id else None, NAMED_MAX)
    exact = [row for row in rows if row["name"] == reference]
    matches = exact or rows
    if not matches:
        raise NotFoundError(f"no living pod is called {reference!r}", hint=_HINT)
    if len(matches) > 1:
        named = ", ".join(f"{row['name']} ({row['id']})" for row in matches[:3])
        more = ", …" if len(matches) > 3 else ""  # noqa: PLR2004 -- as many as were named
        raise NotFoundError(
            f"{reference!r} names {len(matches)} pods: {named}{more}", hint="give the whole id"
        )
    pod_id: UUID = matches[0]["id"]
    return pod_id


async def request(db: Database, pod_id: UUID, *, by: str, reason: str = "") -> bool:
    """Request that a pod drain; False if it was requested before: the first request is recorded.

    Raises `ConflictError` for a pod that drains by itself or has ended, `NotFoundError`.
    """
    if await db.fetch("drains.request", pod_id, by, reason):
        return True
    await _refuse_unless_living(db, pod_id)
    return False


async def withdraw(db: Database, pod_id: UUID, *, by: str, reason: str = "") -> bool:
    """Let a pod take jobs again; False if no drain was requested. Raises as `request`."""
    if await db.fetch("drains.withdraw", pod_id, by, reason):
        return True
    await _refuse_unless_living(db, pod_id)
    return False


async def is_requested(db: Database, pod_id: UUID) -> bool:
    """Return whether a drain of the pod is requested; False for an unknown pod."""
    row = await db.fetch_one("drains.is_requested", pod_id)
    return row is not None and bool(row["is_requested"])


async def moved(db: Database, pod_id: UUID) -> Moved:
    """Return what happened to the jobs that a pod has handed back since its drain began."""
    rows = await db.fetch("drains.moved", pod_id, HANDED_BACK_MAX)
    groups = rows_of(MovedGroup, [row for row in rows if row["what"]])
    return Moved(groups=tuple(groups), is_whole=rows[0]["is_whole"])


async def with_moved(db: Database, rows: Sequence[PodRow]) -> list[PodRow]:
    """Return pods with what happened to their jobs; pods that do not drain stay unchanged."""
    return [
        attrs.evolve(row, moved=await moved(db, row.id)) if row.is_leaving else row for row in rows
    ]


async def _refuse_unless_living(db: Database, pod_id: UUID) -> None:
    row = await db.fetch_one("drains.standing", pod_id)
    if row is None:
        raise NotFoundError(f"pod {pod_id} does not exist", hint=_HINT)
    if row["state"] not in {"READY", "DRAINING"}:
        raise ConflictError(f"pod {row['name']} has ended: it is {row['state']}", hint=_HINT)
    if row["phase"] is not None:
        message = f"pod {row['name']} is leaving: its process is shutting down"
        raise ConflictError(message, hint="see how far it is: cortex pods ls")
