"""Gates: steps that wait for people. While one waits, its job holds nothing anywhere.

The decision is a step of its own: on every later attempt it is in the record like any other.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import (
    APPROVAL,
    PEOPLE_MAX,
    ApprovalRequest,
    ApprovalStatus,
    Decided,
    Follow,
    Risk,
)
from cortex.domain.approvals.defaults import (
    EXPIRES_DEFAULT_S,
    ON_DENY_DEFAULT,
    ON_EXPIRY_OF_CODE,
    RISK_DEFAULT,
)
from cortex.domain.approvals.rules import EXPIRES_S, WORDS_MAX
from cortex.domain.argument_brief import call_name
from cortex.domain.canonical import canonical, digest, parse
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import ApprovalExpiredError, DeniedError, InvalidValueError, RejectedError
from cortex.domain.limits import ARGUMENTS
from cortex.domain.redaction import secret_in


@attrs.frozen(kw_only=True)
class Gate:
    """A question for people."""

    risk: Risk = RISK_DEFAULT
    effect: str | None = None
    """What happens outside, as text."""
    reversible: bool | None = None
    people: int = 1
    """How many different people must agree."""
    expires_s: float = EXPIRES_DEFAULT_S
    on_deny: Follow = ON_DENY_DEFAULT
    on_expiry: Follow = ON_EXPIRY_OF_CODE
    policy: str | None = None
    """Why people are asked, as text."""
    schema: Mapping[str, Any] | None = None
    """Checks edited arguments; None: they are not to be edited."""

    def covers(self, other: "Gate") -> bool:
        """Return whether an approval under these terms also satisfies the other ones."""
        return other.people <= self.people and other.risk.rank <= self.risk.rank


def risk_of(risk: Risk | str) -> Risk:
    """Return the level of that name. Raises `RejectedError` for another word."""
    try:
        return Risk(risk)
    except ValueError:
        raise RejectedError(f"risk is {risk!r}", hint=f"one of {', '.join(Risk)}") from None


def check_people(people: int | None, risk: Risk) -> None:
    """Raise `RejectedError` for a number of people that the risk does not permit."""
    if people is not None and not risk.people_min <= people <= PEOPLE_MAX:
        raise RejectedError(f"people is {people}, outside {risk.people_min} to {PEOPLE_MAX}")


def check_expiry(expires_s: float) -> None:
    """Raise `RejectedError` for an expiry that is too short or too long."""
    low, high = EXPIRES_S
    if not low <= expires_s <= high:
        raise RejectedError(f"expires_s is {expires_s}, outside {low} to {high}")


def own_gate(name: str, *, risk: Risk | str, people: int | None, **terms: Any) -> Gate:
    """Return the gate that job code asks for; raises `RejectedError` for invalid terms."""
    try:
        level = risk_of(risk)
        check_people(people, level)
        gate = Gate(risk=level, people=level.people_min if people is None else people, **terms)
        check_expiry(gate.expires_s)
    except RejectedError as error:
        raise RejectedError(f"gate {name!r}: {error.message}", hint=error.hint) from None
    for what, words in (("effect", gate.effect), ("reason", gate.policy)):
        if words is not None and len(words) > WORDS_MAX:
            raise RejectedError(f"gate {name!r}: {what} has more than {WORDS_MAX} characters")
    return gate


@attrs.frozen(kw_only=True)
class Decision:
    """What people decided about a call or about a gate in job code."""

    approval_id: UUID
    is_approved: bool
    by: str | None
    """The last person who agreed, or the one who denied."""
    reason: str | None
    at: str | None
    """RFC 3339."""
    arguments: Any
    """The approved arguments: as asked, or as a person edited them."""
    was_edited: bool

    def to_json(self) -> dict[str, Any]:
        """The recorded fields; arguments only if a person changed them."""
        kept = attrs.asdict(self, filter=lambda name, _: name.name != "arguments")
        kept["approval_id"] = str(self.approval_id)
        return {**kept, "arguments": self.arguments} if self.was_edited else kept

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], *, asked: Any) -> "Decision":
        """Restore what `to_json` returned; `asked` are the original arguments."""
        fields = {"arguments": asked, **stored}
        return cls(**{**fields, "approval_id": UUID(stored["approval_id"])})


def decided(request: ApprovalRequest, answer: Decided | None, *, job_id: UUID) -> Decision:
    """Return the decision, or raise the wish to wait for it.

    Raises `Suspended`, and `ApprovalExpiredError` when no decision came in time. An approval of an
    earlier job of the lineage counts only for the same arguments, for as many people and for no
    lower risk; otherwise people are asked again.
    """
    if answer is None or answer.asked_digest != request.digest or _is_over(answer, request, job_id):
        raise _wish(request, requests=(request,))
    if answer.status is ApprovalStatus.PENDING:
        raise _wish(attrs.evolve(request, id=answer.id), awaited=(answer.id,))
    if answer.status is ApprovalStatus.EXPIRED:
        what = request.tool or request.key
        raise ApprovalExpiredError(f"no decision on {what} in time; nothing was executed")
    return Decision(
        approval_id=answer.id,
        is_approved=answer.status is ApprovalStatus.APPROVED,
        by=answer.by,
        reason=answer.reason,
        at=None if answer.at is None else answer.at.isoformat(),
        arguments=parse(answer.arguments),
        was_edited=answer.digest != answer.asked_digest,
    )


def refused(decision: Decision, what: str) -> DeniedError:
    because = f": {decision.reason}" if decision.reason else ""
    return DeniedError(
        f"{what} was denied by {decision.by}{because}", by=decision.by, reason=decision.reason
    )


def frozen_arguments(arguments: Any, *, what: str) -> tuple[str, bytes]:
    """Return arguments as canonical text, and its SHA-256: what is recorded is what runs.

    Raises `InvalidValueError`, also for a text that is too large or contains a secret.
    """
    text = canonical(arguments, what=what)
    ARGUMENTS.check(len(text.encode()), what=what)
    if secret := secret_in(text):
        raise InvalidValueError(
            f"{what} hold secret {secret}, which must not be recorded",
            hint="let the tool itself look it up",
        )
    return text, digest(text)


def _is_over(answer: Decided, request: ApprovalRequest, job_id: UUID) -> bool:
    """Return whether a request is settled without an effect on this one."""
    if answer.status is ApprovalStatus.CANCELLED:
        return True
    if answer.job_id == job_id:
        return False
    # The continuing agent may be a newer version, with stricter rules.
    is_less = answer.people < request.people or answer.risk.rank < request.risk.rank
    return is_less or answer.status is not ApprovalStatus.APPROVED


def _wish(
    request: ApprovalRequest,
    *,
    requests: tuple[ApprovalRequest, ...] = (),
    awaited: tuple[UUID, ...] = (),
) -> Suspended:
    what = call_name(request.tool or request.key)
    people = f"{request.people} people" if request.people > 1 else "a person"
    return Suspended(
        f"{APPROVAL}{request.id}",
        f"{what} waits for {people} to approve it ({request.risk})",
        delay_s=None,
        requests=requests,
        awaited=awaited,
    )
