"""Approvals: what people are asked before something dangerous runs, and what they decide."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.phrases import utc_time

APPROVAL: Final = "approval:"
"""Prefix of an approval's id in the name of what a job waits for."""
EXPIRES_DEFAULT_S: Final = 86_400
PEOPLE_MAX: Final = 10
TOKEN_BYTES: Final = 32
REASON_CHARS_MAX: Final = 1_000

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
    on_deny: str
    on_expiry: str
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
    effect_status: str | None
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


BATCH_MAX: Final = 50
RISK_MAX: Final = Risk.MED
ALONE: Final = "decide them one by one"


def check_batch(approvals: Sequence[Approval]) -> None:
    """Raise `UsageError` that names the first difference unless they may be decided together.

    One request always may. Takes requests as `store.approvals.show` returns them.
    """
    if len(approvals) == 1:
        return
    if len(approvals) > BATCH_MAX:
        raise UsageError(
            f"{len(approvals)} approvals are more than the {BATCH_MAX} that are decided at once"
        )
    for each in approvals:
        if Risk(each.risk).rank > RISK_MAX.rank:
            raise UsageError(
                f"approval {each.id} is {each.risk}: it must be decided alone", hint=ALONE
            )
    first = approvals[0]
    for noun, of in _SHAPE.items():
        for other in approvals[1:]:
            if of(other) != of(first):
                raise UsageError(
                    f"approvals {first.id} and {other.id} are of different {noun}: "
                    f"{_text(of(first))} and {_text(of(other))}",
                    hint=ALONE,
                )


def varying(approvals: Sequence[Approval]) -> list[str]:
    """Return the names of the arguments in which requests of one shape differ."""
    names = list(approvals[0].arguments)
    texts = {
        name: {repr(each.arguments[name]) for each in approvals}  # 1 and 1.0 differ
        for name in names
    }
    return [name for name in names if len(texts[name]) > 1]


_SHAPE: Final[dict[str, Callable[[Approval], Any]]] = {
    "tools": lambda each: each.tool or f"{each.job_type}, {each.key}",
    "argument names": lambda each: sorted(each.arguments),
    "policies": lambda each: (each.risk, each.effect, each.policy),
}


def _text(shape: Any) -> str:
    texts = shape if isinstance(shape, list | tuple) else (shape,)
    return ", ".join(str(text) for text in texts) or "none"
