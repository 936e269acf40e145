"""The rules of a person's vote that need no locked row, each once."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.approvals.approval import Approval, ApprovalStatus, Risk
from cortex.domain.approvals.vote import (
    BATCH_MAX,
    REASON_CHARS_MAX,
    Vote,
    VoteError,
    check_editable,
    check_ids,
    checked,
    edit_in,
    last_digits,
    objection,
    refusal,
    why_sign_in,
)
from cortex.domain.canonical import canonical
from cortex.domain.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidValueError,
    RejectedError,
    UsageError,
)
from cortex.domain.people import Identity
from tests.support.people import user
from tests.support.records.approvals import SCHEMA
from tests.support.records.store_rows import NOW, an_approval

EDITED = canonical({"amount": 9, "customer": "cus_88"})
ID = UUID("01980000-0000-7000-8000-00000000ab12")


READER = Identity.with_link("ana", link=b"")


def a_row(**fields: Any) -> Approval:
    waiting = {"id": ID, "schema": SCHEMA, "now": NOW, "expires_at": NOW + timedelta(hours=1)}
    return an_approval(**waiting | fields)


def a_vote(row: Approval, **fields: Any) -> Vote:
    said: dict[str, Any] = {
        "approval_id": row.id,
        "is_approved": True,
        "by": user("ana"),
        "seen": row.digest,
        "channel": "api",
    }
    return Vote(**said | fields)


def counted(row: Approval, **fields: Any) -> Vote:
    (vote,) = checked([row], [a_vote(row, **fields)])
    return vote


# --- who may decide


@pytest.mark.parametrize(
    "risk, people, why",
    [
        ("LOW", 1, None),
        ("MED", 1, None),
        ("MED", 2, "needs several people"),
        ("HIGH", 1, "is HIGH"),
        ("CRITICAL", 2, "needs several people"),
    ],
)
@pytest.mark.parametrize("is_approved", [True, False])
def test_a_link_decides_low_and_med_of_one_person_only(
    risk: str, people: int, why: str | None, *, is_approved: bool
) -> None:
    row = a_row(risk=Risk(risk), people=people)
    assert why_sign_in(row) == why
    said = {"is_approved": is_approved, "reason": "no", "confirm": None, "by": READER}
    if why is None:
        assert counted(row, **said).by == READER
    else:
        with pytest.raises(ForbiddenError, match=f"a link is not enough to decide .*: it {why}"):
            counted(row, **said)


def test_a_link_is_refused_also_after_the_end() -> None:
    row = a_row(risk=Risk.HIGH, status=ApprovalStatus.EXPIRED)
    with pytest.raises(ForbiddenError):
        counted(row, by=READER)


# --- what they must type


@pytest.mark.parametrize("risk", ["HIGH", "CRITICAL"])
def test_dangerous_approval_needs_the_end_of_its_id(risk: str) -> None:
    row = a_row(risk=Risk(risk), people=Risk(risk).people_min)
    for typed, output in (
        (None, "missing"),
        (" ", "missing"),
        ("ab1", "not the end"),
        (str(ID), ""),
    ):
        with pytest.raises(VoteError, match=f"confirm is .*{output}.*: approval {ID} is") as caught:
            counted(row, confirm=typed)
        assert caught.value.field == "confirm"
    for typed in ("ab12", " AB12 ", "…ab12", last_digits(ID)):
        assert counted(row, confirm=typed).is_approved
    denial = counted(row, is_approved=False, reason="no")
    assert not denial.is_approved, "a denial is never dangerous"


@pytest.mark.parametrize("risk", ["LOW", "MED"])
def test_a_wrong_end_of_the_id_is_refused_for_any_risk(risk: str) -> None:
    row = a_row(risk=Risk(risk))
    assert counted(row).is_approved
    with pytest.raises(VoteError, match="is not the end"):
        counted(row, confirm="0000")


@pytest.mark.parametrize("reason", [None, "", " \n"])
def test_a_denial_needs_a_reason(reason: str | None) -> None:
    row = a_row()
    with pytest.raises(VoteError, match="a denial needs a reason") as caught:
        counted(row, is_approved=False, reason=reason)
    assert caught.value.field == "reason"
    assert counted(row, reason=reason).reason is None, "an approval needs none"


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_reason_is_not_endless(*, is_approved: bool) -> None:
    row = a_row()
    reason = "x" * REASON_CHARS_MAX
    assert counted(row, is_approved=is_approved, reason=reason).reason == reason
    with pytest.raises(VoteError, match="longer than 1,000 characters"):
        counted(row, is_approved=is_approved, reason=f"{reason}x")


# --- what they saw, and what they change


@pytest.mark.parametrize("seen", [{"seen": b"\0" * 32}, {"version": 7}])
@pytest.mark.parametrize("is_approved", [True, False])
def test_vote_counts_only_for_the_arguments_seen(
    seen: dict[str, Any], *, is_approved: bool
) -> None:
    row = a_row(risk=Risk.HIGH)
    with pytest.raises(ConflictError, match="have changed since they were shown"):
        counted(row, is_approved=is_approved, reason="x", **seen)
    assert counted(row, version=row.version, confirm="ab12").is_approved


def test_an_edit_is_checked_and_made_canonical() -> None:
    row = a_row()
    text = '{"customer": "cus_88",\n "amount": 9}'
    assert counted(row, edited=text).edited == EDITED == edit_in(row, a_vote(row, edited=text))
    assert counted(row, edited=row.arguments_text).edited is None, "nothing is changed"
    for wrong in ("{", "[]", '{"customer": "cus_88"}', '{"customer": 1, "amount": 9}'):
        with pytest.raises(InvalidValueError):
            counted(row, edited=wrong)


def test_request_without_a_schema_cannot_be_edited() -> None:
    row = a_row(schema=None)
    with pytest.raises(RejectedError, match="its arguments cannot be edited"):
        counted(row, edited=EDITED)
    with pytest.raises(RejectedError, match="its arguments cannot be edited"):
        check_editable([row])
    check_editable([a_row()])


def test_edit_needs_a_credential_and_an_approval() -> None:
    row = a_row()
    with pytest.raises(VoteError, match="sign in to change") as caught:
        counted(row, by=READER, edited=EDITED)
    assert caught.value.field == "arguments"
    with pytest.raises(UsageError, match="a denial edits no arguments"):
        counted(row, is_approved=False, reason="no", edited=EDITED)


@pytest.mark.parametrize(
    "over", [{"status": ApprovalStatus.DENIED, "decided_by": "li"}, {"expires_at": NOW}]
)
def test_vote_on_an_ended_request_skips_other_checks(over: dict[str, Any]) -> None:
    """Not by what is wrong with the vote; and its unchecked edit goes no further."""
    row = a_row(risk=Risk.HIGH, **over)
    vote = counted(row, seen=b"", edited="{")
    assert (vote.edited, vote.seen) == (None, b"")


# --- several at once


def test_each_of_a_batch_is_named_once() -> None:
    ids = [UUID(int=number) for number in range(BATCH_MAX + 1)]
    check_ids(ids[:BATCH_MAX])
    for wrong in ([], [*ids[:2], ids[0]], ids):
        with pytest.raises(UsageError):
            check_ids(wrong)


def test_a_batch_is_decided_as_it_stands_and_of_one_shape() -> None:
    rows = [a_row(id=UUID(int=number)) for number in (1, 2)]
    votes = [a_vote(row) for row in rows]
    assert checked(rows, votes) == votes
    with pytest.raises(UsageError, match="only one request can be edited"):
        checked(rows, [votes[0], a_vote(rows[1], edited=EDITED)])
    with pytest.raises(UsageError, match="must be decided alone"):
        checked([rows[0], a_row(risk=Risk.HIGH)], votes)


def test_every_vote_of_a_batch_keeps_the_rules() -> None:
    rows = [a_row(id=UUID(int=number)) for number in (1, 2)]
    denials = [a_vote(rows[0], is_approved=False, reason="no"), a_vote(rows[1], is_approved=False)]
    with pytest.raises(VoteError, match="needs a reason"):
        checked(rows, denials)


# --- why a vote does not count


def test_late_vote_names_the_first_decision() -> None:
    denied = a_row(
        status=ApprovalStatus.DENIED, decided_by="li", decided_at=NOW, channel="page", reason="no"
    )
    output = str(refusal(denied, "already"))
    assert output == f"approval {ID} was already denied by li at 2026-07-01T12:00:00Z on page: no"
    void = a_row(status=ApprovalStatus.CANCELLED, reason="its job was CANCELLED")
    assert str(refusal(void, "already")) == f"approval {ID} is void: its job was CANCELLED"
    for outcome in ("already", "expired"):
        assert isinstance(refusal(a_row(expires_at=NOW), outcome), ExpiredError)


@pytest.mark.parametrize(
    "outcome, family, output",
    [
        ("changed", ConflictError, "have changed since they were shown"),
        ("own_request", ConflictError, "is critical and was asked for by you"),
        ("agreed_before", ConflictError, "you have agreed to"),
        ("no_credential", ForbiddenError, "needs several people"),
        ("not_editable", RejectedError, "cannot be edited"),
    ],
)
def test_each_outcome_of_the_database_has_its_error(
    outcome: str, family: type[Exception], output: str
) -> None:
    error = refusal(a_row(risk=Risk.CRITICAL, people=2), outcome)
    assert isinstance(error, family)
    assert output in error.message


def test_the_same_words_name_a_request_as_it_is_seen() -> None:
    assert objection("own_request", "it") == "it is critical and was asked for by you"
