"""Subscriptions: who gets which messages. Pods notice a change at once."""

from datetime import datetime
from typing import Any, Final

import attrs
import orjson

from cortex.domain.breaker import BreakerState
from cortex.domain.errors import NotFoundError
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.postgres.database import Database
from cortex.store.rows import rows_of

COUNT_MAX: Final = 10_000
"""How many waiting messages of a subscription are counted."""


@attrs.frozen(kw_only=True)
class SubscriptionRow:
    """A subscription, for people."""

    name: str
    topic: str
    filter: dict[str, Any]
    channel: Channel = attrs.field(converter=Channel)
    config: dict[str, Any]
    is_heavy: bool
    changed_by: str
    changed_at: datetime
    created_at: datetime
    breaker: BreakerState | None
    """None: its channel has not failed lately."""
    pending: int
    """Messages that wait, up to `COUNT_MAX`."""
    now: datetime = attrs.field(eq=False)


async def page(db: Database) -> list[SubscriptionRow]:
    """Return all subscriptions by name."""
    return rows_of(SubscriptionRow, await db.fetch("subscriptions.list", COUNT_MAX))


async def every(db: Database) -> list[Subscription]:
    """Return all subscriptions as pods need them."""
    return rows_of(Subscription, await db.fetch("subscriptions.all"))


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
    )
    if row is None:
        return "unchanged"
    return "created" if row["is_new"] else "updated"


async def remove(db: Database, name: str, *, by: str, reason: str) -> None:
    """Remove a subscription; its waiting messages fail. Raises `NotFoundError`."""
    if await db.fetch_one("subscriptions.remove", name, by, reason) is None:
        raise NotFoundError(
            f"subscription {name!r} does not exist", hint="list them: cortex subscriptions ls"
        )
