"""Approvals: what people are asked before something dangerous runs, and what they decide."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import attrs

from cortex.domain.argument_brief import call_brief
from cortex.domain.canonical import parse
from cortex.domain.effect import EffectStatus
from cortex.domain.phrases import utc_time
from cortex.domain.redaction import redact

APPROVAL: Final = "approval:"
"""Prefix of an approval's id in the name of what a job waits for."""
PEOPLE_MAX: Final = 10
BRIEF_MAX: Final = 500

Follow: TypeAlias = Literal["tell", "fail"]
"""The consequence: the agent gets a report and goes on, or the job fails."""


class Risk(StrEnum):
    """How much harm the call may do; from the least to the most."""

    LOW = "LOW"
    MED = "MED"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Risk).index(self)

    @property
    def people_min(self) -> int:
        """How many different people must agree."""
        return 2 if self is Risk.CRITICAL else 1

    @property
    def needs_sign_in(self) -> bool:
        """Whether a link alone does not identify the person well enough."""
        return self.rank >= Risk.HIGH.rank


class ApprovalStatus(StrEnum):
    """The state of a request; all but the first are final."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"
    """No decision came in time: nothing was executed, and it was not denied."""
    CANCELLED = "CANCELLED"
    """Its job ended in another way."""


@attrs.frozen(kw_only=True)
class ApprovalRequest:
    """A job's question. Its arguments are canonical JSON: what is shown is what runs."""

    id: UUID
    key: str
    """The step that waits for it."""
    tool: str | None
    """None for a gate in the job's own code."""
    arguments: str
    digest: bytes
    """SHA-256 of the arguments."""
    schema: Mapping[str, Any] | None
    """JSON schema that edited arguments are checked against; None: not to be edited."""
    risk: Risk
    effect: str | None
    """What happens outside, as text."""
    reversible: bool | None
    """None: unknown."""
    policy: str | None
    """The policy that requires it, as text."""
    said: str | None
    """The model's text beside the call; decisions must not rely on it."""
    people: int
    """How many different people must agree."""
    expires_s: float
    on_deny: Follow
    on_expiry: Follow

    @property
    def brief(self) -> str:
        """The call on one line, for messages: never all of its arguments, and no secret."""
        return redact(call_brief(self.tool or self.key, parse(self.arguments)))[:BRIEF_MAX]


@attrs.frozen(kw_only=True)
class Decided:
    """A request as its job sees it when it resumes."""

    id: UUID
    job_id: UUID
    """The job that asked: maybe an earlier one of its lineage."""
    status: ApprovalStatus
    arguments: str
    """As asked, or as a person edited them: canonical JSON."""
    digest: bytes
    """SHA-256 of `arguments`."""
    asked_digest: bytes
    risk: Risk
    people: int
    by: str | None
    reason: str | None
    at: datetime | None
    waited_s: float | None
    """Seconds from the request to its end; None while it waits."""


@attrs.frozen(kw_only=True)
class ApprovalHead:
    """The fields of a request that every list has."""

    id: UUID
    job_id: UUID
    key: str
    """The step that waits for it."""
    tool: str | None
    """None for a gate in the job's own code."""
    digest: bytes
    """SHA-256 of its arguments."""
    version: int
    """Raised by each edit."""
    risk: Risk = attrs.field(converter=Risk)
    effect: str | None
    policy: str | None
    people: int
    """How many different people must agree."""
    agreed: int
    """How many have agreed."""
    status: ApprovalStatus = attrs.field(converter=ApprovalStatus)
    created_at: datetime
    expires_at: datetime
    edited_by: str | None
    decided_at: datetime | None
    decided_by: str | None
    channel: str | None
    reason: str | None
    agent: str | None
    job_type: str | None

    def status_at(self, now: datetime) -> ApprovalStatus:
        """Return its status; EXPIRED as soon as its time is over, whatever the row says."""
        is_over = self.status is ApprovalStatus.PENDING and self.expires_at <= now
        return ApprovalStatus.EXPIRED if is_over else self.status


@attrs.frozen(kw_only=True)
class ApprovalRow(ApprovalHead):
    """A request with its arguments."""

    arguments: dict[str, Any]
    arguments_text: str
    """Canonical JSON, as they will run."""
    schema: Mapping[str, Any] | None
    """Checks edits; None: not to be edited."""
    reversible: bool | None
    """None: unknown."""
    requested_by: str | None
    now: datetime = attrs.field(eq=False)

    @property
    def is_open(self) -> bool:
        """Whether it could still be decided when it was read."""
        return self.status_at(self.now) is ApprovalStatus.PENDING


@attrs.frozen(kw_only=True)
class ApprovalVote:
    """One person who agreed."""

    person: str
    credential: str | None
    at: datetime
    channel: str
    reason: str | None
    digest: str
    """Of the arguments that were agreed to, hexadecimal: others do not count."""
    edited: bool
    is_disabled: bool
    """The person has been disabled since: an agreement counts only until then."""


@attrs.frozen(kw_only=True)
class Approval(ApprovalRow):
    """A request in full."""

    seq: int
    lineage_id: UUID
    attempt: int
    tenant: str
    agent_id: UUID | None
    agent_version: int | None
    asked: dict[str, Any]
    """What the job asked for, before any edit."""
    asked_text: str
    asked_digest: bytes
    said: str | None
    """By the model: decisions must not rely on it."""
    on_deny: Follow
    on_expiry: Follow
    requested_with: str | None
    decided_with: str | None
    address: str | None
    client: str | None
    has_link: bool
    token_by: str | None
    """The person who made its link."""
    job_status: str | None
    job_head: Mapping[str, Any] | None
    """The job's steps and cost so far."""
    is_job_due: bool
    effect_id: UUID | None
    """The effect that it permitted."""
    effect_status: EffectStatus | None
    votes: tuple[ApprovalVote, ...]


def ended(approval: Approval) -> str:
    """Return how it was decided, by whom, how and why; empty while it waits."""
    status = approval.status
    if status is ApprovalStatus.PENDING or approval.decided_at is None:
        return ""
    at = utc_time(approval.decided_at)
    why = f": {approval.reason}" if approval.reason else ""
    match status:
        case ApprovalStatus.EXPIRED:
            return f"expired at {at}: no decision came, nothing was executed"
        case ApprovalStatus.CANCELLED:
            return f"void since {at}{why}"
        case _:
            how = f" on {approval.channel}" if approval.channel else ""
            where = f" from {approval.address}" if approval.address else ""
            return f"{status.lower()} by {approval.decided_by} at {at}{how}{where}{why}"
