"""Messages about requests for approval, for people: who may decide, where, and what it is about.

They carry the risk, the call on one line, the agent, the job and the expiry. They never carry all
arguments: the page behind the link shows those. The only link is that one: those of a call's
arguments are shown as text.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from cortex.domain.approvals.approval import Risk
from cortex.domain.messages.message import Message
from cortex.domain.messages.quoting import unlinked
from cortex.domain.phrases import utc_time
from cortex.domain.safe import safe

REQUESTED: Final = "approval.requested"
REMINDER: Final = "approval.reminder"
APPROVAL_TOPICS: Final = (
    REQUESTED,
    REMINDER,
    "approval.decided",
    "approval.expired",
)
_WAITS: Final = (REQUESTED, REMINDER)


def with_link(message: Message, page_url: str | None) -> Message:
    """Return a message with who may decide and with the link to the page, if it is about that."""
    if message.topic not in APPROVAL_TOPICS:
        return message
    payload = {**message.payload, "who": who_decides(message.payload)}
    if page_url is not None:
        payload["link"] = f"{page_url}/approvals/{message.payload['approval']}"
    return attrs.evolve(message, payload=payload)


def who_decides(payload: Mapping[str, Any]) -> str:
    """Return who may decide on the request of a message, in words."""
    people, risk = payload["people"], Risk(payload["risk"])
    count = "one person" if people == 1 else f"{people} different people"
    how = "" if risk is not Risk.CRITICAL else "; not whoever submitted the job"
    if people == 1 and not risk.needs_sign_in:
        return f"{count} with the role approver, or a link from `cortex approvals link`"
    return f"{count} with the role approver, signed in{how}"


def approval_text(message: Message) -> str:
    """Return the text of a message about a request."""
    return "\n".join(_lines(message.topic, message.payload))


def _lines(topic: str, payload: Mapping[str, Any]) -> Iterator[str]:
    name = safe(str(payload.get("tool") or payload["step"]))
    risk = payload["risk"]
    if topic in _WAITS:
        yield f"{risk}: {name} {_waits(topic, payload)}"
    elif topic == "approval.expired":
        yield f"expired: nobody decided on {name} in time, and it did not run"
    else:
        by = f" by {safe(payload['decided_by'])}" if "decided_by" in payload else ""
        yield f"{payload['status'].lower()}{by}: {name} ({risk})"
    if "reason" in payload:
        yield f"reason: {unlinked(safe(payload['reason']))}"
    if "call" in payload:
        yield f"call: {unlinked(safe(payload['call']))}"
    if "effect" in payload:
        yield f"effect: {safe(payload['effect'])}{_UNDO[payload.get('reversible')]}"
    agent = f", agent {safe(payload['agent'])}" if "agent" in payload else ""
    yield f"job: {payload['job']}{agent}, tenant {safe(payload['tenant'])}"
    if topic in _WAITS:
        yield f"expires: {utc_time(datetime.fromisoformat(payload['expires_at']))}"
        yield f"who decides: {payload.get('who') or who_decides(payload)}"
    if "link" in payload:
        yield f"page: {payload['link']}"
    if topic in _WAITS:
        yield f"terminal: cortex approvals show {payload['approval']}"


def _waits(topic: str, payload: Mapping[str, Any]) -> str:
    if topic != REMINDER:
        return "waits for a decision"
    stage = str(payload.get("stage"))
    passed = f": {stage} of its time has passed" if stage.endswith("%") else ""
    return f"still waits for a decision (reminder{passed})"


_UNDO: Final = {True: " (can be undone)", False: " (cannot be undone)", None: ""}
