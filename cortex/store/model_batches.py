"""Model calls that wait in batches: added by jobs, sent and ended by a runner."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import attrs
import orjson

from cortex.domain.job import Lease
from cortex.postgres.database import Database
from cortex.store.rows import row_of, rows_of

FORGET_MAX = 500
WAKE_MAX = 1000


@attrs.frozen(kw_only=True)
class KnownCall:
    """A call as its job finds it."""

    id: UUID
    state: Literal["WAITING", "SENT", "SUCCEEDED", "FAILED", "DROPPED"]
    answer: str | None
    usage: Mapping[str, Any] | None
    cost_usd: Decimal | None
    failure: str | None
    added_at: datetime
    done_at: datetime | None


@attrs.frozen(kw_only=True)
class NewCall:
    """A call on its way into a batch; `id` is that of its reservation."""

    id: UUID
    lease: Lease
    pod_id: UUID
    lineage_id: UUID
    step: str
    digest: bytes
    endpoint: str
    model: str
    config_id: int | None
    request: str
    size: int


@attrs.frozen(kw_only=True)
class GatheredCall:
    """A call of a batch that is to be sent."""

    id: UUID
    lineage_id: UUID
    endpoint: str
    model: str
    config_id: int | None
    request: str


@attrs.frozen(kw_only=True)
class OpenBatch:
    """A batch that is in the hands of one process."""

    id: UUID
    endpoint: str
    state: Literal["SENDING", "SENT"]
    remote_id: str | None
    call_count: int
    created_at: datetime
    now: datetime


@attrs.frozen(kw_only=True)
class OpenCall:
    """A call of a batch that has no result yet."""

    id: UUID
    model: str
    config_id: int | None


@attrs.frozen(kw_only=True)
class Outlook:
    """What there is to do."""

    is_waiting: bool
    due_in_s: float | None


@attrs.frozen(kw_only=True)
class EndedCall:
    """The result of a call: an answer, or why it has to be made directly."""

    id: UUID
    answer: str | None
    usage: Mapping[str, Any] | None
    """None: nothing was billed."""
    cost_usd: Decimal | None
    failure: str | None

    @classmethod
    def failed(cls, id: UUID, why: str) -> "EndedCall":  # noqa: A002 -- as its field
        """Return the result of a call that was not sent."""
        return cls(id=id, answer=None, usage=None, cost_usd=None, failure=why)


async def find(
    db: Database, *, lineage_id: UUID, job_id: UUID, step: str, digest: bytes
) -> KnownCall | None:
    """Return the call of a step, and note that its job has seen the outcome if there is one."""
    row = await db.fetch_one("model_batches.find", lineage_id, job_id, step, digest)
    return None if row is None else row_of(KnownCall, row)


async def add(db: Database, call: NewCall) -> bool:
    """Have a call wait for a batch; False: the attempt is over. Safe to repeat."""
    row = await db.fetch_one(
        "model_batches.add",
        call.id,
        call.lease.job_id,
        call.lease.attempt,
        call.pod_id,
        call.lineage_id,
        call.step,
        call.digest,
        call.endpoint,
        call.model,
        call.config_id,
        call.request,
        call.size,
    )
    return row is not None and bool(row["is_added"])


async def outlook(db: Database, endpoints: Sequence[str]) -> Outlook:
    row = await db.fetch_one("model_batches.outlook", list(endpoints))
    if row is None:
        raise AssertionError("model_batches.outlook always answers")
    return row_of(Outlook, row)


async def gather(
    db: Database,
    batch_id: UUID,
    endpoints: Sequence[str],
    *,
    calls_max: int,
    bytes_max: int,
    wait_s: float,
    lease_s: float,
) -> list[GatheredCall]:
    """Put waiting calls into a new batch; none, and no batch, if it is too early for them."""
    rows = await db.fetch(
        "model_batches.gather", batch_id, list(endpoints), calls_max, bytes_max, wait_s, lease_s
    )
    return rows_of(GatheredCall, rows)


async def sent(db: Database, batch_id: UUID, remote_id: str, *, again_s: float) -> bool:
    """Record the provider's id of a batch; False: another process has decided what became of it."""
    return await db.fetch_one("model_batches.sent", batch_id, remote_id, again_s) is not None


async def put_off(db: Database, batch_id: UUID, *, again_s: float) -> None:
    """Have a batch looked at later."""
    await db.fetch("model_batches.put_off", batch_id, again_s)


async def unsend(db: Database, batch_id: UUID, why: str, *, again_s: float | None) -> int:
    """End a batch that certainly was not created; return how many calls are to be made directly.

    `again_s`: when its calls may be put into another one; None: all are to be made directly.
    """
    row = await db.fetch_one("model_batches.unsend", batch_id, why, again_s)
    return row["failed"] if row else 0


async def claim(db: Database, endpoints: Sequence[str], *, lease_s: float) -> OpenBatch | None:
    """Take one batch that is due; after `lease_s` seconds another process may."""
    row = await db.fetch_one("model_batches.claim", list(endpoints), lease_s)
    return None if row is None else row_of(OpenBatch, row)


async def calls(db: Database, batch_id: UUID) -> list[OpenCall]:
    """Return the calls of a batch that have no result yet."""
    return rows_of(OpenCall, await db.fetch("model_batches.calls", batch_id))


async def others(db: Database, endpoint: str, remote_ids: Sequence[str]) -> set[str]:
    """Return which of these batches are known as other ones."""
    rows = await db.fetch("model_batches.others", endpoint, list(remote_ids))
    return {row["remote_id"] for row in rows}


async def end_calls(db: Database, batch_id: UUID, ended: Sequence[EndedCall]) -> int:
    """Keep results and book them; return how many were new."""
    row = await db.fetch_one(
        "model_batches.end_calls",
        batch_id,
        [each.id for each in ended],
        [each.answer for each in ended],
        [None if each.usage is None else orjson.dumps(each.usage).decode() for each in ended],
        [each.cost_usd for each in ended],
        [each.failure for each in ended],
    )
    return row["count"] if row else 0


async def end(db: Database, batch_id: UUID, *, are_lost: bool, why: str) -> int:
    """End a batch; return how many calls had no result, which are booked as lost."""
    row = await db.fetch_one("model_batches.end", batch_id, are_lost, why)
    return row["lost"] if row else 0


async def wake(db: Database, *, limit: int = WAKE_MAX) -> int:
    """Give tasks to jobs whose call is over; return how many."""
    row = await db.fetch_one("model_batches.wake", limit)
    return row["count"] if row else 0


async def forget(db: Database, *, limit: int = FORGET_MAX) -> int:
    """Delete calls that are over and of no use; return how many."""
    row = await db.fetch_one("model_batches.forget", limit)
    return row["count"] if row else 0
