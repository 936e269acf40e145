"""`approval_notify`: reminds people of a request for approval that still waits."""

from typing import Final
from uuid import uuid5

import attrs
import structlog

from cortex.domain.job import APPROVAL_NOTIFY
from cortex.durable.attempt import ApprovalReminder
from cortex.durable.context import Context
from cortex.durable.registry import job

NAME: Final = APPROVAL_NOTIFY
NOBODY: Final = "no subscription matches it: cortex subscriptions apply FILE"

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class ApprovalNotice:
    """Who was notified of a request."""

    approval: str
    status: str
    """Of the request: only one that is PENDING is reminded of."""
    notified: list[str]
    """The subscriptions that get the message; the outbox sends it."""
    is_degraded: bool
    """It waits, but nobody is notified: that was written to the log instead."""


@job(NAME)
async def approval_notify(ctx: Context, approval: str) -> ApprovalNotice:
    """Send a request to everybody whose subscription matches it, again; `approval`: its id.

    The pods do so by themselves when it is made, and at half and at nine tenths of its time.
    """

    async def remind() -> ApprovalReminder:
        # The same id however often this runs: it reminds once.
        message_id = uuid5(ctx.job_id, "message")
        return await ctx.services.channels.remind(approval, message_id=message_id)

    done = await ctx.step("remind", remind)
    is_degraded = done.status == "PENDING" and not done.notified
    if is_degraded:
        _log.warning("nobody notified of an approval", approval=done.approval, hint=NOBODY)
    return ApprovalNotice(
        approval=done.approval,
        status=done.status,
        notified=done.notified,
        is_degraded=is_degraded,
    )
