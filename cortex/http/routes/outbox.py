"""`/v1/outbox` and `/v1/subscriptions`: messages to others, and who gets which."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.breaker import BreakerState
from cortex.domain.messages.message import MessageStatus
from cortex.domain.messages.subscription import Channel
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.route import Method, Route, answer
from cortex.http.framework.shape import field, record, text, whole
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions

LIMIT_MAX: Final = 200
NAME_MAX: Final = 100
NEWEST: Final = 2**53


@attrs.frozen(kw_only=True)
class MessagesQuery:
    """Selects messages, the newest first."""

    status: MessageStatus | None = field(doc="only in this state", default=None)
    subscription: str = text(doc="only to this subscription", length_max=NAME_MAX, default="")
    topic: str = text(doc="only these topics; * is anything", length_max=NAME_MAX, default="")
    before: int = whole(doc="only older than this seq", low=1, high=NEWEST, default=NEWEST)
    limit: int = limit_field(LIMIT_MAX)


@attrs.frozen(kw_only=True)
class MessageRow:
    """A message for one subscription."""

    seq: int = field(doc="order of the rows")
    id: UUID = field(doc="the message: shared by its rows")
    topic: str
    key: str | None = field(doc="messages of one key are sent in order")
    payload: Any
    headers: Any
    tenant: str
    trace: str | None
    subscription: str | None = field(doc="null: nobody had subscribed")
    channel: Channel | None = field(doc="null: the subscription was removed")
    status: MessageStatus
    attempts: int
    available_at: datetime = field(doc="when it may be sent")
    is_parked: bool = field(doc="waits behind an earlier message of its key")
    locked_until: datetime | None
    pod: str | None = field(doc="the pod that sends it now")
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


@attrs.frozen(kw_only=True)
class Messages:
    """A page of messages, the newest first."""

    messages: list[MessageRow]


@attrs.frozen(kw_only=True)
class SubscriptionRow:
    """A subscription: who gets which messages."""

    name: str
    topic: str = field(doc="a pattern: * stands for any characters")
    filter: Any = field(doc="it gets only messages whose payload contains this")
    channel: Channel
    config: Any = field(doc="settings of the channel; places of secrets, never secrets")
    is_heavy: bool
    changed_by: str
    changed_at: datetime
    created_at: datetime
    breaker: BreakerState | None = field(doc="null: its channel has not failed lately")
    pending: int = field(doc="messages that wait, up to a limit")


@attrs.frozen(kw_only=True)
class Subscriptions:
    """All subscriptions, by name."""

    subscriptions: list[SubscriptionRow]


async def list_messages(request: CheckedRequest[MessagesQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        store.page,
        statuses=tuple(MessageStatus) if query.status is None else (query.status,),
        subscription=query.subscription or None,
        topic=query.topic or None,
        before=query.before,
        limit=query.limit,
    )
    return answer(Messages(messages=[record(MessageRow, row) for row in rows]))


async def list_subscriptions(_: CheckedRequest[None, None], api: Api) -> Response:
    rows = await api.port(subscriptions.page)
    return answer(Subscriptions(subscriptions=[record(SubscriptionRow, row) for row in rows]))


ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/outbox",
        handle=list_messages,
        role=Role.VIEWER,
        summary="List messages to people and other systems, the newest first.",
        query=MessagesQuery,
        answers={200: Messages},
    ),
    Route(
        method=Method.GET,
        path="/v1/subscriptions",
        handle=list_subscriptions,
        role=Role.VIEWER,
        summary="List who gets which messages.",
        answers={200: Subscriptions},
    ),
)
