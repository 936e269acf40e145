"""Signals: sent from outside, taken by the steps that receive them."""

from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.job import Lease
from cortex.domain.signals import ReceivedSignal
from cortex.postgres.database import Connection, Database
from cortex.store.rows import rows_of


@attrs.frozen(kw_only=True)
class Taken:
    """The answer to a step that receives."""

    is_owned: bool
    """The attempt still has its job."""
    signal: ReceivedSignal | None
    """None: there is none yet."""


@attrs.frozen(kw_only=True)
class SignalRow:
    """A signal, as people see it."""

    id: UUID
    seq: int
    """Order of arrival."""
    name: str
    key: str | None
    sent_at: datetime
    sent_by: str | None
    size_bytes: int
    payload: Any
    """None if it is larger than 4,096 bytes."""
    taken_at: datetime | None
    taken_step: str | None
    taken_by: UUID | None


async def send(
    db: Database,
    name: str,
    payload: str,
    *,
    job: UUID | None = None,
    key: str | None = None,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    by: str | None = None,
    credential: str | None = None,
    reason: str = "",
) -> UUID:
    """Send a signal to a job or to a key; return its id. `payload` is JSON text.

    `by`: who sends it, and with which `credential`; by default the session's login. A reason is
    recorded as a fact.

    Sending it again under the same idempotency key returns the first one's id. Raises
    `NotFoundError` for an unknown job, `ConflictError` for one that has ended, `KeyReusedError`,
    and `InvalidValueError`.
    """
    given = (name, payload, job, key, tenant, idempotency_key, by, credential)
    if not reason:
        return await _send(db, *given)

    async def send_and_note(connection: Connection) -> UUID:
        inside = db.bound(connection)
        sent = await _send(inside, *given)
        await inside.fetch("signals.note_sent", sent, by, reason)
        return sent

    return await db.transact(send_and_note)


async def _send(db: Database, *given: object) -> UUID:
    row = await db.fetch_one("signals.send", *given)
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


async def of_job(
    db: Database, job_id: UUID, *, after: int = 0, limit: int, is_waiting: bool = False
) -> list[SignalRow]:
    """Return what was sent to a job's lineage, and what it received from keys, in order.

    `is_waiting`: only what no step has received.
    """
    return rows_of(SignalRow, await db.fetch("signals.of_job", job_id, after, is_waiting, limit))


async def awaited(db: Database, *, limit: int) -> list[str]:
    """Return names of signals for which jobs wait, of the first so many waits."""
    return [row["name"] for row in await db.fetch("signals.awaited", limit)]


async def forget(db: Database, *, limit: int) -> int:
    """Delete signals to keys that no job has asked for within a day; return how many."""
    row = await db.fetch_one("signals.forget", limit)
    return row["count"] if row else 0
