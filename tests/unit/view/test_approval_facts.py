"""The facts of a request that a person must see, the same on every surface."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from cortex.domain.approvals.approval import Approval, ApprovalStatus, ApprovalVote, Risk
from cortex.view.approval_facts import (
    DENY_REASONS,
    RISK_WORDS,
    countdown,
    facts_of,
)
from tests.support.records.rows import new_id
from tests.support.records.store_rows import an_approval

NOW = datetime(2026, 7, 1, 12, 26, 4, tzinfo=UTC)


def a_row(**fields: Any) -> Approval:
    """A request as the store shows it."""
    defaults: dict[str, Any] = {
        "id": new_id(),
        "key": "3 refund approval",
        "risk": "HIGH",
        "agent_id": new_id(),
        "job_id": new_id(),
        "job_type": "run_agent",
        "job_head": {"seq": 3, "cost_usd": "0.0213"},
        "requested_by": "li",
        "policy": "refund > 500",
        "said": "I will refund it.",
        "schema": {},
        "created_at": NOW - timedelta(minutes=1),
        "expires_at": NOW + timedelta(minutes=4, seconds=12),
        "now": NOW,
    }
    return an_approval(**defaults | fields)


def a_vote(row: Approval, **fields: Any) -> ApprovalVote:
    defaults: dict[str, Any] = {
        "person": "ana",
        "credential": None,
        "at": datetime(2026, 7, 1, 12, 26, tzinfo=UTC),
        "channel": "page",
        "reason": None,
        "digest": row.digest.hex(),
        "edited": False,
        "is_disabled": False,
    }
    return ApprovalVote(**defaults | fields)


def test_facts_name_requester_arguments_and_cost() -> None:
    facts = facts_of(a_row())
    assert (facts.title, facts.is_call, facts.effect) == ("refund", True, "money out")
    assert (facts.agent, facts.submitted_by) == ("refund-bot v9", "li")
    assert facts.so_far == "3 steps, $0.0213"
    assert facts.undo == "cannot be undone"
    assert [(row.field, row.value) for row in facts.rows] == [
        ("amount", "12.4"),
        ("customer", "cus_88"),
    ]
    assert (facts.left_s, facts.is_open) == (252.0, True)
    assert facts.last_digits == str(facts.id)[-4:]


def test_a_gate_in_a_jobs_own_code_has_neither_agent_nor_tool() -> None:
    facts = facts_of(a_row(tool=None, key="publish", agent=None, agent_id=None, job_head=None))
    assert (facts.title, facts.is_call, facts.agent) == ("publish", False, "")
    assert facts.so_far == "0 steps"
    assert facts.if_approved == "the job goes on"
    assert facts.if_denied == "publish does not run; the job's code is informed and goes on"


def test_a_question_that_ends_its_job_says_so() -> None:
    """An agent that goes round in circles, or whose model refuses, is told nothing."""
    asked = a_row(tool=None, key="8 loop", on_deny="fail", on_expiry="fail")
    facts = facts_of(asked)
    assert (facts.if_approved, facts.if_denied) == ("the job goes on", "the job fails")
    assert facts.if_expired == "the job fails; it counts as expired (not as denied)"


def test_denied_flow_step_describes_when_the_flow_fails() -> None:
    step = {"tool": None, "key": "agree", "agent": None, "agent_id": None, "job_type": "run_flow"}
    denied = facts_of(a_row(**step)).if_denied
    assert denied == "agree does not run; the flow fails, unless the step has on_error: continue"
    assert "the agent is informed" in facts_of(a_row(job_type="run_flow")).if_denied


def test_approval_facts_escape_hostile_text() -> None:
    bad = "\x1b[2J\u202e"
    names = ("tool", "key", "effect", "agent", "job_type", "requested_by", "policy", "said")
    row = a_row(**dict.fromkeys(names, bad), asked={bad: bad}, edited_by=bad)
    vote = a_vote(row, person=bad, reason=bad, channel=bad)
    row = attrs.evolve(row, votes=(vote,))
    shown = str(facts_of(row))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert facts_of(row).hidden_count == 4


def test_expired_time_ends_a_pending_request_only() -> None:
    row = a_row(expires_at=NOW)
    assert facts_of(row).status is ApprovalStatus.EXPIRED
    assert not row.is_open
    assert facts_of(row).left_s == 0
    denied = a_row(status="DENIED", expires_at=NOW)
    assert facts_of(denied).status is ApprovalStatus.DENIED


@pytest.mark.parametrize(
    "risk, people, digits, sign_in",
    [
        (Risk.LOW, 1, False, False),
        (Risk.MED, 1, False, False),
        (Risk.LOW, 2, False, True),
        (Risk.HIGH, 1, True, True),
        (Risk.CRITICAL, 2, True, True),
    ],
)
def test_risk_decides_confirmation_and_sign_in(
    risk: Risk, people: int, digits: bool, sign_in: bool
) -> None:
    row = a_row(risk=risk, people=people)
    facts = facts_of(row)
    assert (facts.needs_last_digits, facts.why_sign_in is not None) == (digits, sign_in)
    assert RISK_WORDS[risk]


def test_votes_count_for_the_arguments_as_they_stand() -> None:
    row = a_row(risk="CRITICAL", people=3, agreed=1, arguments={"customer": "cus_88", "amount": 9})
    votes = (a_vote(row, person="Kim", edited=True), a_vote(row, digest="00"))
    row = attrs.evolve(row, votes=votes)
    facts = facts_of(row)
    assert [vote.why_not for vote in facts.votes] == ["", "to other arguments than these"]
    assert facts.votes_words == "1 of 3 people agreed; 2 more people must"
    assert facts.has_agreed("kim")
    assert not facts.has_agreed("ana"), "to other arguments"
    assert [(each.field, each.old, each.new) for each in facts.changes] == [("amount", "12.4", "9")]
    assert facts_of(a_row()).votes_words == ""


def test_a_vote_of_a_disabled_person_counts_once_it_has_decided() -> None:
    row = a_row(risk="CRITICAL", people=2, agreed=0)
    row = attrs.evolve(row, votes=(a_vote(row, person="Kim", is_disabled=True),))
    assert [vote.why_not for vote in facts_of(row).votes] == ["and was disabled since"]
    decided = attrs.evolve(row, status=ApprovalStatus.APPROVED)
    assert [vote.why_not for vote in facts_of(decided).votes] == [""]


@pytest.mark.parametrize(
    "seconds, words",
    [
        (-1, "0 s"),
        (0.9, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (252, "4 min 12 s"),
        (3_780, "1 h 03 min"),
        (86_399, "23 h 59 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_time_left_is_written_in_words(seconds: float, words: str) -> None:
    assert countdown(seconds) == words


def test_deny_reasons_are_five() -> None:
    assert len(set(DENY_REASONS)) == 5
