"""Everything a person must see of a request before deciding on it, identical on every surface.

Takes a request as `store.approvals.show` returns it. All text in the facts is safe to display, and
no argument is left out.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalStatus, ApprovalVote, Risk
from cortex.domain.approvals.vote import last_digits, needs_last_digits, why_sign_in
from cortex.domain.argument_check import ArgumentChange, changes
from cortex.domain.safe import safe
from cortex.view.approvals import (
    REVERSIBLE,
    call_of,
    if_approved,
    if_denied,
    if_expired,
    left_s,
    what,
)
from cortex.view.arguments import ArgumentRow, argument_rows, with_marked_blanks
from cortex.view.steps import step_label

DENY_REASONS: Final = (
    "wrong amount or recipient",
    "not needed any more",
    "not allowed here",
    "the arguments look wrong or forged",
    "ask me before you try this again",
)
"""Ready-made reasons for denying a request."""

RISK_WORDS: Final = {
    Risk.LOW: "low risk",
    Risk.MED: "medium risk",
    Risk.HIGH: "high risk",
    Risk.CRITICAL: "critical",
}


@attrs.frozen(kw_only=True)
class Vote:
    """One person's approval."""

    person: str
    at: datetime
    channel: str
    reason: str
    was_edited: bool
    why_not: str
    """Why it does not count; "" if it does."""


@attrs.frozen(kw_only=True)
class Facts:
    """The facts that a decision is based on."""

    id: UUID
    status: ApprovalStatus
    """EXPIRED as soon as the request can no longer be decided."""
    title: str
    call: str
    """The call with its arguments on one line, shortened to fit: amounts and recipients first."""
    is_call: bool
    """True for a tool call; false for a gate in the job's own code."""
    risk: Risk
    effect: str
    """The external effect; empty if the tool declares none."""
    undo: str
    agent: str
    """With its version; empty for a job without an agent."""
    job_id: UUID
    job_type: str
    job_status: str
    step: str
    submitted_by: str
    so_far: str
    """Progress and cost of the job so far."""
    policy: str
    said: str
    """The model's text, line breaks kept. It is not a basis for the decision."""
    rows: tuple[ArgumentRow, ...]
    canonical: str
    """The exact arguments as canonical JSON."""
    digest: str
    version: int
    changes: tuple[ArgumentChange, ...]
    """Differences between the requested and the current arguments."""
    edited_by: str
    is_editable: bool
    needs_last_digits: bool
    """Whether an approver must type the end of the id."""
    why_sign_in: str | None
    """Why an approver must sign in: a link does not prove who decides; None: it is enough."""
    people: int
    agreed: int
    votes: tuple[Vote, ...]
    if_approved: str
    if_denied: str
    if_expired: str
    created_at: datetime
    expires_at: datetime
    left_s: float

    @property
    def is_open(self) -> bool:
        return self.status is ApprovalStatus.PENDING

    @property
    def last_digits(self) -> str:
        return last_digits(self.id)

    @property
    def hidden_count(self) -> int:
        """Number of invisible characters in the arguments."""
        return sum(row.hidden_count for row in self.rows)

    @property
    def votes_words(self) -> str:
        """Describe how many approvals are missing; empty where one person is enough."""
        if self.people == 1:
            return ""
        missing = self.people - self.agreed
        others = "no one else" if missing <= 0 else f"{missing} more {_people(missing)}"
        return f"{self.agreed} of {self.people} people agreed; {others} must"

    def has_agreed(self, person: str) -> bool:
        """Whether this person agreed to the arguments as they stand."""
        name = safe(person).lower()
        return any(not vote.why_not and vote.person.lower() == name for vote in self.votes)


def facts_of(approval: Approval) -> Facts:
    return Facts(
        id=approval.id,
        status=approval.status_at(approval.now),
        title=what(approval),
        call=call_of(approval, approval.arguments),
        is_call=approval.tool is not None,
        risk=approval.risk,
        effect=_shown(approval.effect),
        undo=REVERSIBLE[approval.reversible],
        agent=_agent(approval),
        job_id=approval.job_id,
        job_type=_safe(approval.job_type),
        job_status=approval.job_status or "",
        step=safe(step_label(approval.key)),
        submitted_by=_safe(approval.requested_by),
        so_far=_so_far(approval),
        policy=_shown(approval.policy),
        said=_shown(approval.said, newline="\n"),
        rows=tuple(argument_rows(approval.arguments)),
        canonical=safe(approval.arguments_text),
        digest=approval.digest.hex(),
        version=approval.version,
        changes=tuple(changes(approval.asked, approval.arguments)),
        edited_by=_safe(approval.edited_by),
        is_editable=approval.schema is not None,
        needs_last_digits=needs_last_digits(approval),
        why_sign_in=why_sign_in(approval),
        people=approval.people,
        agreed=approval.agreed,
        votes=tuple(_vote(vote, approval) for vote in approval.votes),
        if_approved=safe(if_approved(approval)),
        if_denied=safe(if_denied(approval)),
        if_expired=safe(if_expired(approval)),
        created_at=approval.created_at,
        expires_at=approval.expires_at,
        left_s=max(0.0, left_s(approval)),
    )


def countdown(seconds: float) -> str:
    """Return the remaining time, to the second: `4 min 12 s`, `5 h 03 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _agent(approval: Approval) -> str:
    return safe(f"{approval.agent} v{approval.agent_version}") if approval.agent else ""


def _so_far(approval: Approval) -> str:
    head = approval.job_head or {}
    steps = head.get("seq", 0)
    usd = float(head.get("cost_usd", 0))
    digits = 2 if usd >= 0.995 else 4  # noqa: PLR2004 -- smaller sums are shown to a hundredth of a cent
    cost = f", ${usd:,.{digits}f}" if usd else ""
    return f"{steps} {'step' if steps == 1 else 'steps'}{cost}"


def _vote(vote: ApprovalVote, approval: Approval) -> Vote:
    return Vote(
        person=safe(vote.person),
        at=vote.at,
        channel=safe(vote.channel),
        reason=_shown(vote.reason),
        was_edited=vote.edited,
        why_not=_why_not(vote, approval),
    )


def _why_not(vote: ApprovalVote, approval: Approval) -> str:
    if vote.digest != approval.digest.hex():
        return "to other arguments than these"
    if vote.is_disabled and approval.status is ApprovalStatus.PENDING:
        return "and was disabled since"
    return ""


def _people(count: int) -> str:
    return "person" if count == 1 else "people"


def _safe(text: str | None) -> str:
    return safe(text or "")


def _shown(text: str | None, *, newline: str = " ") -> str:
    """Return untrusted text with runs of blanks marked, so that they push nothing out of sight."""
    return safe(with_marked_blanks(text or ""), newline=newline)
