"""Contents of a request's page, by visitor."""

from datetime import datetime
from typing import Any, Final

import attrs
from starlette.responses import Response

from cortex.domain.approvals.approval import Approval, ApprovalStatus
from cortex.domain.approvals.vote import REASON_CHARS_MAX, VoteError
from cortex.domain.argument_check import changes
from cortex.domain.canonical import parse
from cortex.domain.errors import ConflictError, RejectedError
from cortex.domain.job import JobStatus
from cortex.http.page.answer import ApprovalForm
from cortex.http.page.form import csrf_of
from cortex.http.page.rendering import page
from cortex.http.page.visitor import Visitor, path_of
from cortex.view.approval_facts import Facts, facts_of
from cortex.view.arguments import visible_json

ROWS_MAX: Final = 1000
"""Values with a row of their own; the page shows how many more there are, and the JSON has all."""
DRAFT_CHARS_MAX: Final = 200_000
"""A larger form would not fit into a request: such arguments are edited in the terminal."""


@attrs.frozen(kw_only=True)
class Ending:
    """The outcome of a request."""

    word: str
    by: str
    at: datetime
    then: str
    """What followed."""
    reason: str


def show(
    approval: Approval,
    visitor: Visitor,
    *,
    answer: ApprovalForm | None = None,
    edited: str | None = None,
    error: RejectedError | ConflictError | None = None,
) -> Response:
    """Return the page; `answer` refills the form, `edited` asks to confirm a change.

    `error` is why the decision was rejected.
    """
    facts = facts_of(approval)
    has_agreed = visitor.name is not None and facts.has_agreed(visitor.name)
    conflict = error if isinstance(error, ConflictError) else None
    values: dict[str, Any] = {
        "facts": facts,
        "now": approval.now,
        "rows": facts.rows[:ROWS_MAX],
        "rest_count": max(0, len(facts.rows) - ROWS_MAX),
        "ending": _ending(approval, facts),
        "notice": None if conflict is None else _notice(conflict, facts, answer),
        "problem": None if error is None or conflict is error else error.message,
        "wrong": _field(error) if isinstance(error, RejectedError) else None,
        "has_agreed": has_agreed,
        "filled": answer or _EMPTY,
        "edited": None if edited is None else visible_json(parse(edited)),
        "edit_changes": () if edited is None else changes(approval.arguments, parse(edited)),
        "reason_max": REASON_CHARS_MAX,
    }
    status = 200 if error is None else 422 if conflict is None else 409
    return page(
        "approval.html",
        status=status,
        **values,
        **_rights(facts, visitor),
        **_draft(approval, facts, visitor, answer),
    )


def _field(error: RejectedError) -> str:
    """Return which field of the form is wrong."""
    return error.field if isinstance(error, VoteError) else "arguments"


_EMPTY: Final = {"name": "", "canned": "", "reason": ""}


def _rights(facts: Facts, visitor: Visitor) -> dict[str, Any]:
    """Return the visitor's rights, and what keeps them from deciding."""
    why_not = None
    if not visitor.is_approver:
        if visitor.link is None:
            why_not = f"{visitor.name} may view, but not decide: that needs the role approver."
        elif facts.why_sign_in is not None:
            why_not = f"The link shows it. It {facts.why_sign_in}: who decides signs in."
    secret = visitor.secret
    return {
        "name": visitor.name,
        "sign_out_csrf": visitor.sign_out_csrf,
        "here": path_of(facts.id),
        "may_decide": why_not is None,
        "why_not": why_not,
        "is_by_name": not visitor.is_approver,
        "csrf": "" if secret is None else csrf_of(secret, str(facts.id)),
    }


def _draft(
    approval: Approval, facts: Facts, visitor: Visitor, answer: ApprovalForm | None
) -> dict[str, Any]:
    """Return the arguments for editing, if allowed: a typed name is not enough."""
    if not (facts.is_editable and visitor.is_approver):
        return {"draft": None}
    if answer is not None and answer.draft is not None and answer.digest.hex() == facts.digest:
        return {"draft": answer.draft}
    draft = visible_json(approval.arguments)
    return {"draft": draft if len(draft) <= DRAFT_CHARS_MAX else None}


def _notice(error: ConflictError, facts: Facts, answer: ApprovalForm | None) -> str:
    """Return why a decision was rejected."""
    if facts.status is ApprovalStatus.EXPIRED:
        return "Your decision came too late and does not count."
    if not facts.is_open:
        return "Another decision came first; yours does not count."
    if answer is not None and answer.digest.hex() != facts.digest:
        return (
            "The arguments have changed since you saw them. These are the new ones; "
            "your decision on the old ones does not count."
        )
    return error.message


def _ending(approval: Approval, facts: Facts) -> Ending | None:
    if facts.is_open:
        return None
    return Ending(
        word="Void" if facts.status is ApprovalStatus.CANCELLED else facts.status.capitalize(),
        by=approval.decided_by or "",
        at=approval.decided_at or approval.expires_at,
        then=_then(approval, facts),
        reason=approval.reason or "",
    )


def _then(approval: Approval, facts: Facts) -> str:
    match facts.status:
        case ApprovalStatus.APPROVED if facts.job_status in _OVER:
            return f"the job is {facts.job_status}"
        case ApprovalStatus.APPROVED:
            waits = facts.job_status == JobStatus.WAITING_FOR_APPROVAL and not approval.is_job_due
            return "the job still waits for another decision" if waits else "job resumed"
        case ApprovalStatus.EXPIRED:
            return "nothing ran; a new request is needed"
        case _:
            return "nothing ran"


_OVER: Final = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)
