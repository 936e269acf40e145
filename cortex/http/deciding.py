"""One person's decision as it comes over the network: checked, taken, or refused with the reason.

What counts is settled in the database, once; what is checked here is what a person must have
done: read the arguments as they stand, and typed the end of the id where it is dangerous.
"""

from typing import Final
from uuid import UUID

import attrs

from cortex.domain.approval import Approval
from cortex.domain.argument_check import edited_arguments
from cortex.domain.errors import InvalidValueError, RejectedError
from cortex.postgres.database import Database
from cortex.store import approvals
from cortex.store.approvals import Vote, VoteResult, refusal
from cortex.view.approval_facts import (
    LAST_DIGITS,
    is_open,
    last_digits,
    needs_last_digits,
)

CLIENT_CHARS_MAX: Final = 500


class FieldError(InvalidValueError):
    """One thing that was given does not fit; `field` names it."""

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


@attrs.frozen(kw_only=True)
class Person:
    """Who decides, and from where."""

    name: str
    credential: str | None
    """None: nobody signed in."""
    channel: str
    address: str
    client: str | None
    """Its program, as it said."""


@attrs.frozen(kw_only=True)
class Wish:
    """What a person wants to become of a request."""

    approval_id: UUID
    is_approved: bool
    seen: bytes
    """SHA-256 of the arguments that were shown."""
    version: int | None = None
    """Of what was shown; None: whichever has these arguments."""
    reason: str | None = None
    edited: str | None = None
    """Arguments as JSON, in place of those shown."""
    confirm: str | None = None
    """The end of the id."""


async def decide(db: Database, wish: Wish, person: Person) -> VoteResult:
    """Decide; return what it led to.

    Raises `FieldError`, `ConflictError` that says who was first, when
    and how, `ExpiredError`, `NotFoundError`.
    """
    approval = await approvals.show(db, wish.approval_id)
    try:
        ruling = await approvals.decide(db, verdict(approval, wish, person))
    except RejectedError as error:
        raise FieldError("arguments", error.message, hint=error.hint) from error
    if not ruling.is_taken:
        raise refusal(await approvals.show(db, wish.approval_id), ruling)
    return ruling


def verdict(approval: Approval, wish: Wish, person: Person) -> Vote:
    """Return what the database is to decide by. Raises as `decide` does."""
    edited = None
    if is_open(approval):  # else the answer is who was first
        check_unchanged(approval, wish)
        if wish.is_approved:
            check_confirmed(approval, wish.confirm)
        if wish.edited is not None:
            edited = checked_edit(approval, wish.edited)
    return Vote(
        approval_id=wish.approval_id,
        is_approved=wish.is_approved,
        by=person.name,
        credential=person.credential,
        seen=wish.seen,
        reason=wish.reason or None,
        channel=person.channel,
        address=person.address,
        client=person.client,
        edited=edited,
    )


def check_unchanged(approval: Approval, wish: Wish) -> None:
    """Raise `ConflictError` where something else stands than was shown."""
    is_same = wish.version is None or wish.version == approval.version
    if not is_same or wish.seen != approval.digest:
        raise refusal(approval, VoteResult(outcome="changed", agreed_count=0))


def checked_edit(approval: Approval, text: str) -> str:
    """Return edited arguments as they would run. Raises `FieldError`."""
    try:
        return edited_arguments(text, schema=approval.schema)
    except RejectedError as error:
        raise FieldError("arguments", error.message, hint=error.hint) from error


def check_confirmed(approval: Approval, confirm: str | None) -> None:
    """Raise `FieldError` unless the end of the id was typed where it must be."""
    typed = (confirm or "").strip().lstrip("…").lower()
    if needs_last_digits(approval) and typed != last_digits(approval.id):
        told = "is missing" if not typed else "is not the end of its id"
        raise FieldError(
            "confirm",
            f"confirm {told}: approval {approval.id} is {approval.risk}",
            hint=f"give the last {LAST_DIGITS} characters of its id",
        )


def client_of(user_agent: str | None) -> str | None:
    """Return what a program calls itself, as far as it is recorded."""
    return user_agent[:CLIENT_CHARS_MAX] if user_agent else None
