"""The demo's messages about its approval: how to decide it, and who decided."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from cortex.cli.jobs.facts import Snapshot
from cortex.domain.approvals.approval import ApprovalRow, ApprovalStatus
from cortex.domain.phrases import span
from cortex.domain.waiting import ID_DIGITS, ApprovalWait
from cortex.view.approvals import what
from cortex.view.phrases import day_time

Labelled: TypeAlias = tuple[str, str]
"""A label (empty on continuation lines) and the text behind it."""

SENT_NOTHING: Final = "nothing was sent"


def open_request(observed: Snapshot) -> ApprovalWait | None:
    """Return the request that a job waits for now, if any."""
    match observed.job.awaited:
        case ApprovalWait(status=ApprovalStatus.PENDING) as request:
            return request
        case _:
            return None


def how_to_decide(request: ApprovalWait, typed: Callable[..., str]) -> Iterator[Labelled]:
    """Yield the instructions for another terminal; `typed` formats a command for copying."""
    name = request.id.hex[-ID_DIGITS:]
    until = day_time(request.expires_at)
    yield "waits", f"for you: {request.what} is called only if you approve it, until {until}"
    yield "type", typed("tui")
    yield "", "in a second terminal, here: A shows it; read it; a and y approve, d denies"
    yield "or", typed("approvals", "approve", name)
    yield "or", typed("approvals", "deny", name, "--reason", "not to customers")


def how_decided(approval: ApprovalRow) -> str:
    """Return who decided a request, where, how fast and why, in one line."""
    tool, status = what(approval), approval.status
    if status is ApprovalStatus.PENDING or approval.decided_at is None:
        return f"{tool} was not decided"
    after = f"after {span((approval.decided_at - approval.created_at).total_seconds())}"
    if status is ApprovalStatus.EXPIRED:
        return f"{tool} expired {after}: nobody decided, {SENT_NOTHING}"
    if status is ApprovalStatus.CANCELLED:
        return f"{tool} is void: {approval.reason}"
    by = f"{status.lower()} by {approval.decided_by} on {approval.channel} {after}"
    why = f": {approval.reason}" if approval.reason else ""
    edited = f", as {approval.edited_by} edited it" if approval.edited_by else ""
    denied = f"; {SENT_NOTHING}" if status is ApprovalStatus.DENIED else ""
    return f"{tool} {by}{edited}{why}{denied}"
