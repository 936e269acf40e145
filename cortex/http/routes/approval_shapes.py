"""What requests for approval look like on the wire: what is told of them, and what is asked."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.approval import ApprovalStatus, Risk
from cortex.domain.approval_vote import BATCH_MAX, REASON_CHARS_MAX
from cortex.http.framework.shape import text, told, whole

LIMIT_MAX: Final = 200
_DIGEST: Final[dict[str, Any]] = {
    "doc": "SHA-256 of the arguments that were seen, hexadecimal",
    "length_min": 64,
    "length_max": 64,
    "pattern": "[0-9a-f]{64}",
}
_REASON: Final[dict[str, Any]] = {"doc": "why; kept with it", "length_max": REASON_CHARS_MAX}


# --- what is told


@attrs.frozen(kw_only=True)
class ApprovalRow:
    """A request in a list; its arguments are read one by one."""

    id: UUID
    job_id: UUID
    job_type: str | None
    agent: str | None
    key: str = told(doc="the step of the job that waits for it")
    tool: str | None = told(doc="null for a gate in the job's own code")
    digest: str = told(doc="SHA-256 of its arguments, hexadecimal")
    version: int = told(doc="raised by each edit")
    risk: Risk
    effect: str | None = told(doc="what happens outside, in words")
    reversible: bool | None = told(doc="null: nobody said")
    policy: str | None = told(doc="the policy that asks, in words")
    people: int = told(doc="so many different people must agree")
    agreed: int = told(doc="so many have")
    status: ApprovalStatus
    requested_by: str | None = told(doc="who submitted the job")
    created_at: datetime
    expires_at: datetime = told(doc="from then on nobody can decide")
    edited_by: str | None
    decided_at: datetime | None
    decided_by: str | None
    reason: str | None


@attrs.frozen(kw_only=True)
class Vote:
    """One person who agreed."""

    person: str
    at: datetime
    channel: str
    reason: str | None
    digest: str = told(doc="of the arguments that were agreed to: others do not count")
    edited: bool


@attrs.frozen(kw_only=True)
class Approval(ApprovalRow):
    """One request: all that a person must see before deciding."""

    arguments: dict[str, Any] = told(doc="exactly what will run")
    asked: dict[str, Any] = told(doc="what the job asked for, before anybody edited it")
    schema: dict[str, Any] | None = told(doc="by which edits are checked; null: not to be edited")
    said: str | None = told(doc="by the model: nobody is to decide by it")
    agent_version: int | None
    job_status: str | None
    on_deny: str
    on_expiry: str
    if_approved: str = told(doc="what follows, in words")
    if_denied: str
    if_expired: str
    votes: list[Vote]
    channel: str | None = told(doc="how it was decided: cli, api, page, link or tui")
    effect_id: UUID | None = told(doc="what it let through")
    effect_status: str | None
    has_link: bool
    now: datetime = told(doc="the database's time, to compare with")


@attrs.frozen(kw_only=True)
class Approvals:
    """A page of requests."""

    approvals: list[ApprovalRow]
    next_cursor: UUID | None = told(doc="for the next page; null: that was all")


@attrs.frozen(kw_only=True)
class Decided:
    """What a decision led to."""

    id: UUID
    outcome: str = told(doc="approved, agreed (more people are needed) or denied")
    agreed: int = told(doc="so many people have agreed")


@attrs.frozen(kw_only=True)
class BatchDecided:
    """What all of them led to."""

    decided: list[Decided]


@attrs.frozen(kw_only=True)
class Link:
    """A link, shown this once; it takes the place of the one before."""

    path: str
    url: str = told(doc="the same, where this request was sent to")
    needs_sign_in: bool = told(doc="it shows the request, but who decides signs in")
    expires_at: datetime


# --- what is asked


@attrs.frozen(kw_only=True)
class ApprovalsQuery:
    """Which requests."""

    status: list[ApprovalStatus] = told(
        doc="these, newest first; without: those that wait, the most dangerous first", factory=list
    )
    cursor: UUID | None = told(doc="next_cursor of the page before", default=None)
    limit: int = whole(doc="so many at most", low=1, high=LIMIT_MAX, default=50)


@attrs.frozen(kw_only=True)
class Approve:
    """A yes to the arguments with this digest."""

    digest: str = text(**_DIGEST)
    version: int | None = told(doc="of what was seen", default=None)
    reason: str | None = text(**_REASON, default=None)
    arguments: dict[str, Any] | None = told(
        doc="what is to run instead; checked against the schema", default=None
    )
    confirm: str | None = text(
        doc="the last 4 characters of its id, where the risk is HIGH or CRITICAL",
        length_max=40,
        default=None,
    )


@attrs.frozen(kw_only=True)
class Deny:
    """A no."""

    digest: str = text(**_DIGEST)
    version: int | None = told(doc="of what was seen", default=None)
    reason: str = text(doc="why; the agent is told", length_min=1, length_max=REASON_CHARS_MAX)


class BatchAnswer(StrEnum):
    """What several requests are answered."""

    APPROVE = "approve"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class SeenApproval:
    """A request, and which arguments of it were seen."""

    id: UUID
    digest: str = text(**_DIGEST)


@attrs.frozen(kw_only=True)
class Batch:
    """One answer to requests of one shape, none of them above MED: all or none."""

    approvals: list[SeenApproval] = told(doc=f"at most {BATCH_MAX}")
    decision: BatchAnswer
    reason: str | None = text(**_REASON, default=None)
