"""The outbox: publishing, claiming, and recording what became of each message.

A claim gives messages to one pod for `LEASE_S`; what a pod writes later counts only while it still
has the lease: another pod may have sent the message since, under the same id.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import ConflictError, CortexError, NotFoundError
from cortex.domain.messages.message import (
    ESCALATE_S,
    LEASE_S,
    LOST_MAX,
    Message,
    MessageStatus,
    Outcome,
)
from cortex.domain.phrases import short_id
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.queries import sql
from cortex.store.rows import rows_of

READ_MAX: Final = 2_000
"""How many messages of each state a list reads for one page."""
CHANGED_DEFAULT: Final = 1_000
CHANGED_MAX: Final = 10_000
"""How many messages a person changes in one transaction."""

RETRIED: Final = (MessageStatus.FAILED,)
"""What is sent again unless a person names other states."""
UNSENT: Final = (MessageStatus.FAILED, MessageStatus.PENDING)
"""What a person can change."""


@attrs.frozen(kw_only=True)
class Claimed:
    """What a claim gave to a pod."""

    messages: list[Message]
    read_count: int = 0
    """Due messages that it read: the others were parked behind one of their key."""


@attrs.frozen(kw_only=True)
class Recorded:
    """What a record of outcomes wrote."""

    seqs: frozenset[int]
    """Messages whose lease was still held."""
    unparked_count: int
    """Messages that may be claimed now, since the one before them ended."""


@attrs.frozen(kw_only=True)
class MessageHead:
    """A message for one subscription, without its content."""

    seq: int
    id: UUID
    topic: str
    key: str | None
    tenant: str
    subscription: str | None
    escalated_from: str | None
    """The subscription by which it could not be sent before."""
    channel: str | None
    """None: the subscription does not exist any more."""
    status: MessageStatus = attrs.field(converter=MessageStatus)
    attempts: int
    lost_count: int
    """Pods that died, or lost their lease, while they had it."""
    available_at: datetime
    is_parked: bool
    locked_until: datetime | None
    pod: str | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class MessageRow(MessageHead):
    """A message for one subscription, with its content."""

    payload: dict[str, Any]
    headers: dict[str, Any]
    trace: str | None


@attrs.frozen(kw_only=True)
class MessageChoice:
    """Which messages a person changes; None: any."""

    message_id: UUID | None = None
    subscription: str | None = None
    topic: str | None = None
    """A pattern."""
    statuses: tuple[MessageStatus, ...] | None = None
    """Among `UNSENT`; None: those that the change is for."""
    since_s: float | None = None
    """Published within so many seconds."""
    older_s: float | None = None
    """Published longer ago than so many seconds."""
    limit: int = CHANGED_DEFAULT
    tenant: str | None = None


async def claim(
    db: Database, *, pod_id: UUID, most: Mapping[str, int], lease_s: float = LEASE_S
) -> Claimed:
    """Give due messages to a pod; `most` names its subscriptions and the limit of each.

    After `OutcomeUnknownError` the pod may have messages that it does not know: their lease ends.
    """
    rows = await db.fetch("outbox.claim", pod_id, list(most), list(most.values()), lease_s)
    return Claimed(
        messages=[_message(row) for row in rows], read_count=rows[0]["read_count"] if rows else 0
    )


async def renew(
    db: Database, *, pod_id: UUID, messages: Sequence[Message], lease_s: float = LEASE_S
) -> frozenset[int]:
    """Renew the leases of messages; return the seqs of those that the pod still has."""
    seqs, claims = [m.seq for m in messages], [m.claim for m in messages]
    rows = await db.fetch("outbox.renew", pod_id, seqs, claims, lease_s)
    return frozenset(row["seq"] for row in rows)


async def record(
    db: Database, *, pod_id: UUID, outcomes: Iterable[tuple[Message, Outcome]]
) -> Recorded:
    """Write what became of messages whose lease the pod still has.

    Writing the same again changes nothing.
    """
    ordered = sorted(outcomes, key=lambda each: each[0].seq)
    columns: tuple[list[object], ...] = (
        [message.seq for message, _ in ordered],
        [message.claim for message, _ in ordered],
        [outcome.status for _, outcome in ordered],
        [outcome.delay_s for _, outcome in ordered],
        [outcome.is_counted for _, outcome in ordered],
        [outcome.error for _, outcome in ordered],
        [outcome.refusal for _, outcome in ordered],
    )
    if not any(message.key for message, _ in ordered):
        rows = await db.fetch("outbox.record", pod_id, *columns)
        return Recorded(seqs=frozenset(row["seq"] for row in rows), unparked_count=0)

    async def record_and_unpark(connection: Connection) -> Recorded:
        rows = await connection.fetch(sql("outbox.record"), pod_id, *columns)
        unparked_count = await _unpark(connection, rows)
        return Recorded(seqs=frozenset(row["seq"] for row in rows), unparked_count=unparked_count)

    return await db.transact(record_and_unpark)


async def reclaim(db: Database, *, limit: int) -> int:
    """Take messages from pods that lost their leases; return how many."""

    async def take(connection: Connection) -> int:
        rows = await connection.fetch(sql("outbox.reclaim"), limit, LOST_MAX)
        await _unpark(connection, rows)
        return len(rows)

    return await db.transact(take)


async def give_up(db: Database, *, escalate_s: float = ESCALATE_S, limit: int) -> int:
    """Give up messages that cannot be sent; return how many.

    Those whose subscription was removed, and those that have waited `escalate_s` for a channel that
    is down and that has a fallback.
    """

    async def give_up(connection: Connection) -> int:
        rows = [
            *await connection.fetch(sql("outbox.orphan"), limit),
            *await connection.fetch(sql("outbox.escalate"), escalate_s, limit),
        ]
        await _unpark(connection, rows)
        return len(rows)

    return await db.transact(give_up)


async def forget(db: Database, *, sent_s: float, failed_s: float, limit: int) -> int:
    """Delete messages that were sent or given up longer ago; return how many."""
    row = await db.fetch_one("outbox.forget", sent_s, failed_s, limit)
    return row["count"] if row else 0


async def next_due_s(db: Database, *, subscriptions: Sequence[str]) -> float | None:
    """Return in how many seconds the first message of these is due; None: none waits."""
    row = await db.fetch_one("outbox.next_due", list(subscriptions))
    return None if row is None or row["due_s"] is None else max(0.0, row["due_s"])


async def publish(
    db: Database,
    topic: str,
    payload: Mapping[str, Any],
    *,
    key: str | None = None,
    tenant: str = "default",
    headers: Mapping[str, Any] | None = None,
    trace: str | None = None,
) -> UUID:
    """Publish a message of an application; return its id."""
    row = await db.fetch_one(
        "outbox.publish",
        topic,
        orjson.dumps(payload).decode(),
        key,
        tenant,
        orjson.dumps(headers or {}).decode(),
        trace,
    )
    if row is None:
        raise AssertionError("outbox.publish always returns one row")
    published: UUID = row["id"]
    return published


async def page(
    db: Database,
    *,
    statuses: Sequence[MessageStatus] = tuple(MessageStatus),
    before: int | None = None,
    subscription: str | None = None,
    topic: str | None = None,
    message_id: UUID | None = None,
    limit: int = 100,
    tenant: str | None = None,
) -> list[MessageRow]:
    """Return messages of these states, the newest first; `topic`: a pattern."""
    own = tenant or db.tenant
    rows = await db.fetch(
        "outbox.list",
        [status.value for status in statuses],
        before,
        subscription,
        None if topic is None else _like(topic),
        message_id,
        limit if subscription is None and topic is None and own is None else READ_MAX,
        limit,
        own,
    )
    return rows_of(MessageRow, rows)


async def unsent(db: Database, *, limit: int) -> list[MessageHead]:
    """Return failed messages, the newest first, then those not sent yet, the oldest first.

    `limit`: the maximum number of each.
    """
    return rows_of(MessageHead, await db.fetch("outbox.unsent", limit, db.tenant))


async def find(db: Database, text: str) -> UUID:
    """Return the id of a message by its end, or by the whole of it. Raises `NotFoundError`."""
    suffix = text.replace("-", "").lower()
    rows = await db.fetch("outbox.ids_by_suffix", suffix) if suffix else []
    if len(rows) != 1:
        many = (
            f"{len(rows)} messages end with {text!r}" if rows else f"there is no message {text!r}"
        )
        raise NotFoundError(many, hint="list them: cortex outbox ls")
    found: UUID = rows[0]["id"]
    return found


async def retry(db: Database, choice: MessageChoice, *, by: str, reason: str) -> int:
    """Send failed messages again, or waiting ones now, the oldest first; return how many.

    Failed ones alone, unless the choice names states. Raises `NotFoundError` or `ConflictError` if
    a named message cannot be retried.
    """
    statuses = choice.statuses or RETRIED

    async def choose_and_retry(connection: Connection) -> int | CortexError:
        if chosen := await _choose(connection, choice, statuses):
            return len(await connection.fetch(sql("outbox.retry"), chosen, by, reason))
        return await _why_none(connection, choice, statuses)

    return _counted(await db.transact(choose_and_retry))


async def discard(db: Database, choice: MessageChoice, *, by: str, reason: str) -> int:
    """Delete failed and waiting messages, the oldest first; return how many. Raises as `retry`."""
    statuses = choice.statuses or UNSENT

    async def choose_and_discard(connection: Connection) -> int | CortexError:
        if not (chosen := await _choose(connection, choice, statuses)):
            return await _why_none(connection, choice, statuses)
        rows = await connection.fetch(sql("outbox.discard"), chosen, by, reason)
        await _unpark(connection, rows)
        return len(rows)

    return _counted(await db.transact(choose_and_discard))


async def count(
    db: Database, choice: MessageChoice, statuses: Sequence[MessageStatus]
) -> dict[MessageStatus, int]:
    """Return how many messages of each state a change would be about, up to its limit."""
    rows = await db.fetch(
        "outbox.count_chosen",
        list(choice.statuses or statuses),
        *_matching(choice),
        *_age(choice),
        choice.limit,
        choice.tenant or db.tenant,
    )
    return {MessageStatus(row["status"]): row["count"] for row in rows}


def _counted(done: int | CortexError) -> int:
    """Raise an error that a transaction returned: raised inside, it would cost its connection."""
    if isinstance(done, CortexError):
        raise done
    return done


async def _why_none(
    connection: Connection, choice: MessageChoice, statuses: Sequence[MessageStatus]
) -> int | CortexError:
    """Return why a named message is not changed; 0 if none was named."""
    if choice.message_id is None:
        return 0
    rows = await connection.fetch(
        sql("outbox.list"),
        list(MessageStatus),
        None,
        *_matching(choice),
        READ_MAX,
        READ_MAX,
        choice.tenant,
    )
    name = f"message {short_id(choice.message_id)}"
    if not rows:
        return NotFoundError(f"there is no {name}", hint="list them: cortex outbox ls")
    found = {MessageStatus(row["status"]) for row in rows}
    if found.intersection(statuses):
        return ConflictError(f"{name} is just being changed", hint="try again in a moment")
    wanted = " nor ".join(statuses)
    return ConflictError(
        f"{name} is {' and '.join(sorted(found))}, not {wanted}",
        hint=f"look at it: cortex outbox show {choice.message_id}",
    )


async def _choose(
    connection: Connection, choice: MessageChoice, statuses: Sequence[MessageStatus]
) -> list[int]:
    rows = await connection.fetch(
        sql("outbox.choose"),
        list(statuses),
        *_matching(choice),
        *_age(choice),
        choice.limit,
        choice.tenant,
    )
    return [row["seq"] for row in rows]


def _age(choice: MessageChoice) -> tuple[float | None, float | None]:
    return choice.since_s, choice.older_s


def _matching(choice: MessageChoice) -> tuple[str | None, str | None, UUID | None]:
    """Return the subscription, the LIKE pattern of topics and the id that messages must have."""
    topic = None if choice.topic is None else _like(choice.topic)
    return choice.subscription, topic, choice.message_id


async def _unpark(connection: Connection, ended: Sequence[Record]) -> int:
    """Let the next message of each key go whose first one has ended. Needs its own snapshot."""
    lines = {
        (row["subscription"], row["key"])
        for row in ended
        if row["key"] is not None and row.get("status") != MessageStatus.PENDING
    }
    if not lines:
        return 0
    names, keys = zip(*sorted(lines), strict=True)
    return len(await connection.fetch(sql("outbox.unpark"), list(names), list(keys)))


def _like(pattern: str) -> str:
    """Return a pattern of topics as one of LIKE."""
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def _message(row: Record) -> Message:
    return Message(
        id=row["id"],
        attempt=row["attempts"],
        topic=row["topic"],
        payload=orjson.loads(row["payload"]),
        key=row["key"],
        headers=orjson.loads(row["headers"]),
        tenant=row["tenant"],
        trace=row["trace"],
        created_at=row["created_at"],
        subscription=row["subscription"],
        escalated_from=row["escalated_from"],
        seq=row["seq"],
        claim=row["claim"],
    )
