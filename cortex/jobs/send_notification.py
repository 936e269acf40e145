"""`send_notification`: a message to people, by the subscriptions that it matches."""

from datetime import datetime
from typing import Any, Final
from uuid import uuid5

import attrs
import structlog

from cortex.domain.approvals.approval import Risk
from cortex.domain.errors import TransientError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import SEND_NOTIFICATION
from cortex.domain.messages.message import Message
from cortex.durable.context import Context
from cortex.durable.notifying import SENT, TOPIC, Delivery, Notification
from cortex.durable.registry import job

NAME: Final = SEND_NOTIFICATION
LOGGED: Final = ("from", "title", "text", "risk", "data", "job", "agent", "tenant")
NOBODY: Final = "no subscription matches its topic, tenant and risk"

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class NotificationResult:
    """What became of a notification."""

    message_id: str
    """The same in every channel, and on every attempt."""
    sent: list[str]
    """The subscriptions that took it."""
    failed: dict[str, str]
    """Why others did not, in the end."""
    is_degraded: bool
    """Somebody did not get it: its content was written to the log instead."""
    reason: str | None
    """Why it is degraded."""


@job(NAME, check=Notification)
async def send_notification(
    ctx: Context,
    text: str,
    *,
    title: str | None = None,
    topic: str = TOPIC,
    risk: Risk | None = None,
    data: dict[str, Any] | None = None,
) -> NotificationResult:
    """Send the text to every subscription that its topic, its tenant and its risk match.

    A channel that fails is tried again by the job's retries. When they are spent, the content is
    logged at level warning, and the job completes as degraded.
    """
    notification = Notification(text=text, title=title, topic=topic, risk=risk, data=data)

    async def routes() -> Routes:
        return await _routes(ctx, notification)

    fixed = await ctx.step("routes", routes)
    message = Message(
        id=uuid5(ctx.job_id, "message"),
        attempt=1,
        topic=topic,
        payload=fixed.payload,
        tenant=fixed.payload["tenant"],
        created_at=fixed.at,
    )
    outcomes = await _sent(ctx, fixed.names, message)
    failed = {name: each for name, each in outcomes.items() if each != SENT}
    reason = None if fixed.names else NOBODY
    if failed:
        reason = "; ".join(f"{name}: {each}" for name, each in failed.items())
    if reason is not None:
        await _log_instead(ctx, message, reason)
    return NotificationResult(
        message_id=str(message.id),
        sent=[name for name, each in outcomes.items() if each == SENT],
        failed=failed,
        is_degraded=reason is not None,
        reason=reason,
    )


@attrs.frozen(kw_only=True)
class Routes:
    """Who gets a message, fixed once for all attempts."""

    names: list[str]
    payload: dict[str, Any]
    at: datetime


async def _routes(ctx: Context, notification: Notification) -> Routes:
    spec = await ctx.agent_spec()
    tenant = (await ctx.caller("routes")).tenant
    origin = await ctx.services.channels.origin(ctx.job_id)
    payload = notification.payload(
        job=origin or str(ctx.job_id), tenant=tenant, agent=None if spec is None else spec["name"]
    )
    names = await ctx.services.channels.routes(notification.topic, tenant=tenant, payload=payload)
    at = await ctx.services.clock.now()
    return Routes(names=names, payload=payload, at=at)


async def _sent(ctx: Context, names: list[str], message: Message) -> dict[str, str]:
    """Send by each subscription, so that one that fails holds up no other.

    Raises the failure of one that is to be tried again.
    """
    later: list[TransientError] = []

    async def send(name: str) -> str:
        call = ctx.planned(
            f"send {name}", NAME, {"subscription": name}, Delivery(name=name, message=message).plan
        )
        try:
            return str(await call)
        except TransientError as error:
            later.append(error)
            return error.message

    outcomes = await ctx.gather(*(send(name) for name in names))
    if later:
        raise later[0]
    return dict(zip(names, outcomes, strict=True))


async def _log_instead(ctx: Context, message: Message, reason: str) -> None:
    payload = message.payload
    _log.warning(
        "notification not delivered",
        reason=reason,
        topic=message.topic,
        message=str(message.id),
        **{name: payload[name] for name in LOGGED if name in payload},
    )
    failure = Failure(cls=FailureClass.TRANSIENT_APP, code="not_notified", message=reason)
    await ctx.services.facts.failed(
        await ctx.caller("send"), failure, resolution="its content was written to the log"
    )
