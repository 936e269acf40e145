"""JSON shapes of approval requests, in responses and requests."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.approvals.vote import BATCH_MAX, REASON_CHARS_MAX
from cortex.http.framework.shape import field, text, whole

LIMIT_MAX: Final = 200
_DIGEST: Final[dict[str, Any]] = {
    "doc": "SHA-256 of the displayed arguments, hexadecimal",
    "length_min": 64,
    "length_max": 64,
    "pattern": "[0-9a-f]{64}",
}
_REASON: Final[dict[str, Any]] = {
    "doc": "reason, stored with the decision",
    "length_max": REASON_CHARS_MAX,
}


# --- responses


@attrs.frozen(kw_only=True)
class Decided:
    """The outcome of a decision."""

    id: UUID
    outcome: str = field(doc="approved, agreed (more people are needed) or denied")
    agreed: int = field(doc="number of people who agreed")


@attrs.frozen(kw_only=True)
class BatchDecided:
    """The outcome of a batch."""

    decided: list[Decided]


@attrs.frozen(kw_only=True)
class Link:
    """A link, shown only this once; it replaces the previous one."""

    path: str
    url: str = field(doc="the full URL, for the address of this request")
    needs_sign_in: bool = field(doc="the link shows the request, but deciding requires a sign-in")
    expires_at: datetime


# --- requests


@attrs.frozen(kw_only=True)
class ApprovalsQuery:
    """Selects requests."""

    status: list[ApprovalStatus] = field(
        doc=(
            "requests in this state, newest first; default: waiting requests, the "
            "most dangerous first"
        ),
        factory=list,
    )
    cursor: UUID | None = field(doc="next_cursor of the previous page", default=None)
    limit: int = whole(doc="maximum number of rows", low=1, high=LIMIT_MAX, default=50)


@attrs.frozen(kw_only=True)
class Approve:
    """Approves the arguments with this digest."""

    digest: str = text(**_DIGEST)
    version: int | None = field(doc="version of the displayed arguments", default=None)
    reason: str | None = text(**_REASON, default=None)
    arguments: dict[str, Any] | None = field(
        doc="arguments to run instead; checked against the schema", default=None
    )
    confirm: str | None = text(
        doc="the last 4 characters of the id, if the risk is HIGH or CRITICAL",
        length_max=40,
        default=None,
    )


@attrs.frozen(kw_only=True)
class Deny:
    """Denies the request."""

    digest: str = text(**_DIGEST)
    version: int | None = field(doc="version of the displayed arguments", default=None)
    reason: str = text(doc="reason; sent to the agent", length_min=1, length_max=REASON_CHARS_MAX)


class BatchAnswer(StrEnum):
    """The decision for all requests of a batch."""

    APPROVE = "approve"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class SeenApproval:
    """A request and the arguments displayed for it."""

    id: UUID
    digest: str = text(**_DIGEST)


@attrs.frozen(kw_only=True)
class Batch:
    """One decision for requests of the same shape, none above MED: all or none."""

    approvals: list[SeenApproval] = field(doc=f"at most {BATCH_MAX}")
    decision: BatchAnswer
    reason: str | None = text(**_REASON, default=None)
