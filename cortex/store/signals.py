"""Signals: sent from outside, taken by the steps that receive them."""

from uuid import UUID

import attrs

from cortex.domain.job import Lease
from cortex.domain.signals import ReceivedSignal
from cortex.postgres.database import Database


@attrs.frozen(kw_only=True)
class Taken:
    """The answer to a step that receives."""

    is_owned: bool
    """The attempt still has its job."""
    signal: ReceivedSignal | None
    """None: there is none yet."""


async def send(
    db: Database,
    name: str,
    payload: str,
    *,
    job: UUID | None = None,
    key: str | None = None,
    tenant: str | None = None,
    idempotency_key: str | None = None,
) -> UUID:
    """Send a signal to a job or to a key; return its id. `payload` is JSON text.

    Sending it again under the same idempotency key returns the first one's id. Raises
    `NotFoundError` for an unknown job, `ConflictError` for one that has ended, `KeyReusedError`,
    and `InvalidValueError`.
    """
    row = await db.fetch_one("signals.send", name, payload, job, key, tenant, idempotency_key)
    if row is None:
        raise AssertionError("signals.send always answers")
    sent: UUID = row["id"]
    return sent


async def take(
    db: Database, *, lease: Lease, pod_id: UUID, step: str, name: str, key: str | None
) -> Taken:
    """Give a step the next signal of its job and name, or of a key; the same one each time."""
    row = await db.fetch_one("signals.take", lease.job_id, lease.attempt, pod_id, step, name, key)
    if row is None:
        raise AssertionError("signals.take always answers")
    signal = None
    if row["id"] is not None:
        signal = ReceivedSignal(id=row["id"], payload=row["payload"], sent_at=row["sent_at"])
    return Taken(is_owned=row["is_owned"], signal=signal)


async def withdraw(db: Database, *, lease: Lease, pod_id: UUID, step: str) -> bool:
    """Give back what a step has taken and not recorded; return whether the attempt owns its job."""
    row = await db.fetch_one("signals.withdraw", lease.job_id, lease.attempt, pod_id, step)
    return bool(row and row["is_owned"])


async def forget(db: Database, *, limit: int) -> int:
    """Delete signals to keys that no job has asked for within a day; return how many."""
    row = await db.fetch_one("signals.forget", limit)
    return row["count"] if row else 0
