"""A person's vote on a request for approval, and the rules that every vote must keep.

The store applies these rules to each vote, whichever front end it comes from. `cortex.decide`
applies the rules that need the locked row: the first decision wins, a vote counts only before the
expiry and for the arguments that the person saw, and the submitter of a critical request, or a
person who has agreed already, cannot agree to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalHead, ApprovalStatus, Risk, ended
from cortex.domain.argument_check import edited_arguments, not_editable
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ExpiredError,
    ForbiddenError,
    InvalidValueError,
    UsageError,
)
from cortex.domain.people import Identity
from cortex.domain.phrases import utc_time
from cortex.domain.token import ANOTHER

REASON_CHARS_MAX: Final = 1_000
LAST_DIGITS: Final = 4
BATCH_MAX: Final = 50
BATCH_RISK_MAX: Final = Risk.MED
ALONE: Final = "decide them one by one"


@attrs.frozen(kw_only=True)
class Vote:
    """One person's decision on one request."""

    approval_id: UUID
    is_approved: bool
    by: Identity
    seen: bytes
    """SHA-256 of the arguments that this person saw; the vote counts for no others."""
    version: int | None = None
    """The version that this person saw; None: any version with these arguments."""
    reason: str | None = None
    confirm: str | None = None
    """The end of the id, as this person typed it."""
    edited: str | None = None
    """The arguments as this person edited them, JSON; None: as they stand."""
    channel: str
    """cli, api, page, link (nobody signed in), tui or mcp."""
    address: str | None = None
    client: str | None = None


class VoteError(InvalidValueError):
    """One part of a vote breaks a rule; `field` names it: reason, confirm, arguments or name."""

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


def checked(approvals: Sequence[Approval], votes: Sequence[Vote]) -> list[Vote]:
    """Check the votes on these requests, in the same order, and return them ready to be counted.

    Edited arguments become canonical JSON, or None if they change nothing. Raises `UsageError` for
    requests that cannot be decided together, `ForbiddenError`, `ConflictError`, `VoteError` and
    what `edited_arguments` raises. A vote on a request that has ended passes without its edit: the
    database answers how the request ended.
    """
    check_batch(approvals)
    if len(votes) > 1 and any(vote.edited is not None for vote in votes):
        check_editable(approvals)
    return [_checked(*pair) for pair in zip(approvals, votes, strict=True)]


def _checked(approval: Approval, vote: Vote) -> Vote:
    check_signed_in(approval, is_signed_in=vote.by.is_signed_in)
    check_reason(vote.reason, is_required=not vote.is_approved)
    edited = None
    if approval.is_open:
        edited = edit_in(approval, vote)
        if vote.is_approved:
            check_confirmed(approval, vote.confirm)
    reason = vote.reason if vote.reason and vote.reason.strip() else None
    return attrs.evolve(vote, edited=edited, reason=reason)


# --- Who may decide, and what they must type.


def why_sign_in(approval: ApprovalHead) -> str | None:
    """Return why the person who decides must sign in; None: a link is enough."""
    if approval.people > 1:
        return "needs several people"
    return f"is {approval.risk}" if approval.risk.needs_sign_in else None


def check_signed_in(approval: ApprovalHead, *, is_signed_in: bool) -> None:
    """Raise `ForbiddenError` if nobody signed in and a link is not enough."""
    if not is_signed_in and why_sign_in(approval) is not None:
        raise _not_signed_in(approval)


def _not_signed_in(approval: ApprovalHead) -> ForbiddenError:
    why = why_sign_in(approval)
    return ForbiddenError(
        f"a link is not enough to decide approval {approval.id}: it {why}", hint="sign in"
    )


def last_digits(approval_id: UUID) -> str:
    """Return the end of an id, as people type it."""
    return approval_id.hex[-LAST_DIGITS:]


def needs_last_digits(approval: ApprovalHead) -> bool:
    """Whether an approver must type the end of the id."""
    return approval.risk.rank >= Risk.HIGH.rank


def is_end_of_id(approval: ApprovalHead, typed: str) -> bool:
    """Whether somebody typed the end of this request's id."""
    return typed.strip().lstrip("…").lower() == last_digits(approval.id)


def check_confirmed(approval: ApprovalHead, typed: str | None) -> None:
    """Raise `VoteError` if the end of the id is wrong, or missing where it is needed."""
    if typed and typed.strip():
        if is_end_of_id(approval, typed):
            return
        wrong = "confirm is not the end of its id"
    elif needs_last_digits(approval):
        wrong = "confirm is missing"
    else:
        return
    raise VoteError(
        "confirm",
        f"{wrong}: approval {approval.id} is {approval.risk}",
        hint=f"give the last {LAST_DIGITS} characters of its id",
    )


def check_reason(reason: str | None, *, is_required: bool) -> None:
    """Raise `VoteError` for a denial without a reason, and for a reason that is too long."""
    if is_required and not (reason or "").strip():
        raise VoteError("reason", "a denial needs a reason: the job gets it")
    if len(reason or "") > REASON_CHARS_MAX:
        raise VoteError("reason", f"the reason is longer than {REASON_CHARS_MAX:,} characters")


# --- What they saw, and what they change.


def check_editable(approvals: Sequence[Approval]) -> None:
    """Raise `UsageError` for several requests, `RejectedError` for one without a schema."""
    if len(approvals) > 1:
        raise UsageError("only one request can be edited at a time", hint=ALONE)
    if approvals[0].schema is None:
        raise not_editable()


def edit_in(approval: Approval, vote: Vote) -> str | None:
    """Return the arguments that a vote puts in place of the current ones; None: it changes none.

    Raises `ConflictError` if the person saw other arguments than the current ones, `VoteError` for
    an edit without a sign-in, `UsageError` for an edit by a denial, and what `edited_arguments`
    raises.
    """
    is_same_version = vote.version is None or vote.version == approval.version
    if not is_same_version or vote.seen != approval.digest:
        raise refusal(approval, "changed")
    if vote.edited is None:
        return None
    if not vote.is_approved:
        raise UsageError("a denial edits no arguments")
    if not vote.by.is_signed_in:
        raise VoteError("arguments", "sign in to change the arguments")
    edited = edited_arguments(vote.edited, schema=approval.schema)
    return None if edited == approval.arguments_text else edited


# --- Which requests are decided together.


def check_ids(ids: Sequence[UUID]) -> None:
    """Raise `UsageError` for no request, too many of them, or one that is named twice."""
    if not ids or len(set(ids)) < len(ids):
        raise UsageError(f"give 1 to {BATCH_MAX} approvals, each once")
    if len(ids) > BATCH_MAX:
        raise UsageError(
            f"{len(ids)} approvals are more than the {BATCH_MAX} that are decided at once"
        )


def check_batch(approvals: Sequence[Approval]) -> None:
    """Raise `UsageError` that names the first difference unless they may be decided together.

    One may always. Takes requests as `store.approvals.show` gives them.
    """
    check_ids([each.id for each in approvals])
    if len(approvals) == 1:
        return
    for each in approvals:
        if each.risk.rank > BATCH_RISK_MAX.rank:
            raise UsageError(
                f"approval {each.id} is {each.risk}: it must be decided alone", hint=ALONE
            )
    first = approvals[0]
    for noun, of in _SHAPE.items():
        for other in approvals[1:]:
            if of(other) != of(first):
                raise UsageError(
                    f"approvals {first.id} and {other.id} are of different {noun}: "
                    f"{_listed(of(first))} and {_listed(of(other))}",
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


def _listed(shape: Any) -> str:
    texts = shape if isinstance(shape, list | tuple) else (shape,)
    return ", ".join(str(text) for text in texts) or "none"


# --- Why a vote does not count.


def refusal(approval: Approval, outcome: str) -> CortexError:
    """Return the error for a vote that does not count; `outcome` is what `cortex.decide` returned.

    A `ConflictError`, except for the two outcomes that `checked` raises first: no sign-in, and an
    edit without a schema.
    """
    name = f"approval {approval.id}"
    match outcome:
        case "already" | "expired":
            return _too_late(approval, name)
        case "no_credential":
            return _not_signed_in(approval)
        case "not_editable":
            return not_editable()
        case _:
            return unmet(outcome, name)


def unmet(outcome: str, name: str) -> ConflictError:
    """Return the error for a person who may not agree to what is called `name`, or has before."""
    return ConflictError(objection(outcome, name), hint=_OBJECTIONS[outcome][1])


def objection(outcome: str, name: str) -> str:
    """Return the reason against a vote, with the request called `name`."""
    return _OBJECTIONS[outcome][0].format(name=name)


def _too_late(approval: Approval, name: str) -> ConflictError:
    if approval.status is ApprovalStatus.CANCELLED:
        return ConflictError(f"{name} is void: {approval.reason}")
    if approval.decided_by is not None:
        return ConflictError(f"{name} was already {ended(approval)}")
    return ExpiredError(
        f"{name} expired at {utc_time(approval.expires_at)}: nothing was executed",
        hint="where its job failed by that, retry the job to be asked anew",
    )


_OBJECTIONS: Final = {
    "changed": (
        "the arguments of {name} have changed since they were shown",
        "look at them again before deciding",
    ),
    "own_request": ("{name} is critical and was asked for by you", ANOTHER),
    "shared_credential": (
        "{name} is critical: an operating-system user is not enough to agree to it",
        "set CORTEX_TOKEN=TOKEN (from cortex tokens create --name YOU --role approver)",
    ),
    "agreed_before": ("you have agreed to {name} already", ANOTHER),
}
