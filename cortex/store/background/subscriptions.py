"""Subscriptions: who gets which messages. Pods notice a change at once."""

import difflib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import attrs
import orjson

from cortex.domain.approvals.approval import Risk
from cortex.domain.breaker import BreakerState
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.postgres.database import Database
from cortex.store.rows import row_of, rows_of

_LIST: Final = "list them: cortex subscriptions ls"
COUNT_MAX: Final = 10_000
"""How many waiting messages of a subscription are counted."""


@attrs.frozen(kw_only=True)
class SubscriptionRow:
    name: str
    topic: str
    filter: dict[str, Any]
    channel: Channel = attrs.field(converter=Channel)
    config: dict[str, Any]
    is_heavy: bool
    tenant: str | None
    min_risk: Risk | None = attrs.field(converter=attrs.converters.optional(Risk))
    fallback: str | None
    attempts: int | None
    timeout_s: int | None
    """Each None: the default of the channel."""
    changed_by: str
    changed_at: datetime
    created_at: datetime
    breaker: BreakerState | None
    """None: its channel has not failed lately."""
    pending: int
    """Messages that wait, up to `COUNT_MAX`."""
    failing_since: datetime | None
    """When the first attempt failed since which it took no message; None: it takes them."""
    failures: int
    last_error: str | None
    next_attempt_at: datetime | None
    """While it fails: when the first of its messages is tried again."""
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class FailingSubscription:
    """A subscription whose receiver takes no message."""

    name: str
    since: datetime
    failed_at: datetime
    failures: int
    last_error: str
    pending: int
    """Messages that wait, up to `COUNT_MAX`."""
    now: datetime = attrs.field(eq=False)


async def failing(db: Database, *, limit: int) -> list[FailingSubscription]:
    """Return subscriptions whose receiver takes no message, the longest first."""
    rows = await db.fetch("subscriptions.failing", COUNT_MAX, limit)
    return rows_of(FailingSubscription, rows)


async def page(db: Database) -> list[SubscriptionRow]:
    """Return all subscriptions by name."""
    return rows_of(SubscriptionRow, await db.fetch("subscriptions.list", COUNT_MAX))


async def every(db: Database) -> list[Subscription]:
    """Return all subscriptions as pods need them."""
    return rows_of(Subscription, await db.fetch("subscriptions.all"))


async def one(db: Database, name: str) -> Subscription | None:
    """Return a subscription; None if it does not exist."""
    row = await db.fetch_one("subscriptions.one", name)
    return None if row is None else row_of(Subscription, row)


async def require(db: Database, name: str) -> None:
    """Raise `NotFoundError` unless the subscription exists, with the nearest name."""
    names = [each.name for each in await every(db)]
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else _LIST
        raise NotFoundError(f"subscription {name!r} does not exist", hint=hint)


async def put(db: Database, subscription: Subscription, *, by: str, reason: str) -> str:
    """Write a subscription; return whether it was created, updated or unchanged."""
    row = await db.fetch_one(
        "subscriptions.put",
        subscription.name,
        subscription.topic,
        orjson.dumps(subscription.filter).decode(),
        subscription.channel.value,
        orjson.dumps(subscription.config).decode(),
        subscription.is_heavy,
        by,
        reason,
        subscription.tenant,
        subscription.min_risk,
        subscription.fallback,
        subscription.attempts,
        subscription.timeout_s,
    )
    if row is None:
        return "unchanged"
    return "created" if row["is_new"] else "updated"


async def routes(db: Database, topic: str, *, tenant: str, payload: Mapping[str, Any]) -> list[str]:
    """Return the subscriptions that get a message like this one, without handlers in code."""
    rows = await db.fetch("subscriptions.routes", topic, tenant, orjson.dumps(payload).decode())
    return [row["name"] for row in rows]


async def remove(db: Database, name: str, *, by: str, reason: str) -> None:
    """Remove a subscription; its waiting messages fail.

    Raises `NotFoundError`, and `ConflictError` while it is the fallback of another.
    """
    users = [each.name for each in await every(db) if each.fallback == name]
    if users:
        raise ConflictError(
            f"subscription {name!r} is the fallback of {', '.join(users)}",
            hint="give those another fallback first",
        )
    if await db.fetch_one("subscriptions.remove", name, by, reason) is None:
        raise NotFoundError(f"subscription {name!r} does not exist", hint=_LIST)
