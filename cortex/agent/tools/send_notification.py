"""The tool `send_notification`: a message to people, as a job of its own that does not wait."""

from typing import Any, Literal

import attrs
import orjson

from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.errors import RejectedError
from cortex.durable.notifying import TOPIC, Notification


@attrs.frozen
class Notified:
    """The job that sends it."""

    job: str


@tool(effect=True, idempotent=True, local=True, says="sends a message to people")
async def send_notification(
    context: ToolContext,
    text: str,
    *,
    title: str | None = None,
    topic: str = TOPIC,
    risk: Literal["LOW", "MED", "HIGH", "CRITICAL"] | None = None,
    data: dict[str, Any] | None = None,
) -> Notified:
    """Notify people. They are chosen by the topic and the risk; you go on without an answer.

    Args:
        text: What they should know, in plain words.
        title: A short headline.
        topic: Words with dots, such as notification.info or invoice.late.
        risk: How much harm is possible; people may only be subscribed to high ones.
        data: Further details, as JSON.
    """
    if context.notify is None:
        raise RejectedError("send_notification: there is no pod that could send it")
    notification = Notification(text=text, title=title, topic=topic, risk=risk, data=data)
    payload = orjson.dumps(notification.to_json()).decode()
    await context.notify(payload, context.invocation.id)
    return Notified(str(context.invocation.id))
