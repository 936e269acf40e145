"""`/v1/outbox`: messages to people and other systems."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.errors import NotFoundError, UsageError
from cortex.domain.messages.message import MessageStatus
from cortex.domain.phrases import parse_span
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.idempotent import mutate
from cortex.http.framework.resource import page_of, schema_of_page
from cortex.http.framework.route import UUID_PARAM, Handler, Route, answer, change, read
from cortex.http.framework.shape import field, text, whole
from cortex.http.framework.tenancy import Tenancy
from cortex.http.reason import reason_field
from cortex.postgres.database import Database
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions
from cortex.store.background.outbox import CHANGED_DEFAULT, CHANGED_MAX, MessageChoice
from cortex.view.resources.messages import MESSAGES
from cortex.view.verbs import RETRY_MESSAGE

MESSAGE: Final = "/v1/outbox/{message_id}"
ROWS_MAX: Final = 1_000
"""Subscriptions shown for one message."""
LIMIT_MAX: Final = 200
NAME_MAX: Final = 100
NEWEST: Final = 2**53
PAGE: Final = schema_of_page(MESSAGES, doc="A page of messages, the newest first.")


@attrs.frozen(kw_only=True)
class MessagesQuery:
    """Selects messages, the newest first."""

    status: MessageStatus | None = field(doc="only in this state", default=None)
    subscription: str = text(doc="only to this subscription", length_max=NAME_MAX, default="")
    topic: str = text(doc="only these topics; * is anything", length_max=NAME_MAX, default="")
    before: int = whole(doc="only older than this seq", low=1, high=NEWEST, default=NEWEST)
    limit: int = limit_field(LIMIT_MAX)


@attrs.frozen(kw_only=True)
class MessageChange:
    """Changes a message."""

    subscription: str = text(
        doc="only for this subscription; empty: for each", length_max=NAME_MAX, default=""
    )
    reason: str = reason_field(RETRY_MESSAGE)


@attrs.frozen(kw_only=True)
class MessagesChange(MessageChange):
    """Changes messages, the oldest first: all that match each of the given filters."""

    topic: str = text(doc="only these topics; * is anything", length_max=NAME_MAX, default="")
    status: MessageStatus | None = field(
        doc="FAILED or PENDING; null: FAILED for a retry, both for a discard", default=None
    )
    since: str = text(doc="only published within 90s, 15m, 2h, 3d", length_max=8, default="")
    older: str = text(doc="only published longer ago than that", length_max=8, default="")
    is_dry_run: bool = field(doc="count, and change nothing", default=False)
    limit: int = whole(doc="most messages", low=1, high=CHANGED_MAX, default=CHANGED_DEFAULT)


@attrs.frozen(kw_only=True)
class MessagesChanged:
    """How many messages were changed; one for two subscriptions counts twice."""

    count: int


async def list_messages(request: CheckedRequest[MessagesQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        store.page,
        statuses=tuple(MessageStatus) if query.status is None else (query.status,),
        subscription=query.subscription or None,
        topic=query.topic or None,
        before=query.before,
        limit=query.limit,
        tenant=request.tenant,
    )
    return answer(page_of(MESSAGES, rows))


async def show_message(request: CheckedRequest[None, None], api: Api) -> Response:
    message_id: UUID = request.path["message_id"]
    rows = await api.port(store.page, message_id=message_id, limit=ROWS_MAX)
    if not rows:
        raise NotFoundError(f"there is no message {message_id}", hint="list them: GET /v1/outbox")
    return answer(page_of(MESSAGES, rows))


async def retry_message(request: CheckedRequest[None, MessageChange], api: Api) -> Response:
    return await _change(request, api, store.retry, _named(request))


async def discard_message(request: CheckedRequest[None, MessageChange], api: Api) -> Response:
    return await _change(request, api, store.discard, _named(request))


async def retry_messages(request: CheckedRequest[None, MessagesChange], api: Api) -> Response:
    if request.body.is_dry_run:
        return await _counted(api, _chosen(request), store.RETRIED)
    return await _change(request, api, store.retry, _chosen(request))


async def discard_messages(request: CheckedRequest[None, MessagesChange], api: Api) -> Response:
    if request.body.is_dry_run:
        return await _counted(api, _chosen(request), store.UNSENT)
    return await _change(request, api, store.discard, _chosen(request))


async def _counted(api: Api, choice: MessageChoice, statuses: Sequence[MessageStatus]) -> Response:
    counts = await api.port(store.count, choice, statuses)
    return answer(MessagesChanged(count=sum(counts.values())))


def _named(request: CheckedRequest[None, MessageChange]) -> MessageChoice:
    return MessageChoice(
        message_id=request.path["message_id"], subscription=request.body.subscription or None
    )


def _chosen(request: CheckedRequest[None, MessagesChange]) -> MessageChoice:
    body = request.body
    statuses = None if body.status is None else (body.status,)
    if not (body.subscription or body.topic or body.since or body.older or statuses):
        raise UsageError(
            "no message is chosen", hint="give subscription, topic, status, since or older"
        )
    if statuses is not None and statuses[0] not in store.UNSENT:
        raise UsageError(f"status is {statuses[0]}, not FAILED or PENDING")
    return MessageChoice(
        subscription=body.subscription or None,
        topic=body.topic or None,
        statuses=statuses,
        since_s=parse_span(body.since) if body.since else None,
        older_s=parse_span(body.older) if body.older else None,
        limit=body.limit,
        tenant=request.tenant,
    )


async def _change(
    request: CheckedRequest[None, Any],
    api: Api,
    act: Callable[..., Awaitable[int]],
    choice: MessageChoice,
) -> Response:
    by, reason = request.principal.name, request.body.reason

    async def work(db: Database) -> dict[str, int]:
        count = await act(db, choice, by=by, reason=reason)
        if not count and choice.subscription is not None:
            await subscriptions.require(db, choice.subscription)
        return {"count": count}

    operation, asked = f"outbox.{act.__name__}", attrs.asdict(choice) | {"reason": reason}
    return await mutate(request, api, work, operation=operation, request=asked)


def _act(path: str, handle: Handler, summary: str) -> Route:
    is_one = path.startswith(MESSAGE)
    return change(
        RETRY_MESSAGE,
        path,
        handle,
        summary,
        params={"message_id": UUID_PARAM} if is_one else {},
        body=MessageChange if is_one else MessagesChange,
        answers={200: MessagesChanged},
        refuses=(404, 409) if is_one else (404,),
        tenancy=Tenancy.MESSAGE if is_one else Tenancy.FILTERED,
    )


ROUTES: Final = (
    read(
        "/v1/outbox",
        list_messages,
        "List messages to people and other systems, the newest first.",
        query=MessagesQuery,
        answers={200: PAGE},
        tenancy=Tenancy.FILTERED,
    ),
    _act("/v1/outbox/retry", retry_messages, "Send failed messages again, under the same ids."),
    _act("/v1/outbox/discard", discard_messages, "Delete messages that failed or still wait."),
    read(
        MESSAGE,
        show_message,
        "Show a message, once for each subscription that gets it.",
        params={"message_id": UUID_PARAM},
        answers={200: PAGE},
        refuses=(404,),
        tenancy=Tenancy.MESSAGE,
    ),
    _act(f"{MESSAGE}/retry", retry_message, "Send a failed message again, under the same id."),
    _act(f"{MESSAGE}/discard", discard_message, "Delete a message that failed or still waits."),
)
