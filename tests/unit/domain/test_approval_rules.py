"""Which calls people must approve: marks of tools, rules of agents, and doubt on the safe side."""

import inspect
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from cortex.domain.approvals.approval import Risk
from cortex.domain.approvals.defaults import EXPIRES_DEFAULT_S
from cortex.domain.approvals.rules import (
    ApprovalRule,
    ApprovalTerms,
    Gate,
    GatedCall,
    ToolMark,
    beyond,
    gate_of,
    rules_from_json,
)
from cortex.durable.context import Context

MANUAL: Final = Path(__file__).parents[3] / "docs" / "guides"
ASK = ApprovalRule(approve=True)
LET = ApprovalRule(approve=False)


def call(
    tool: str = "send_mail",
    *,
    mark: ToolMark | None = None,
    is_effect: bool = True,
    **arguments: Any,
) -> GatedCall:
    return GatedCall(tool=tool, arguments=arguments, is_effect=is_effect, mark=mark or ToolMark())


def asks(one: GatedCall, *rules: ApprovalRule) -> bool:
    return gate_of(one, rules) is not None


@pytest.mark.parametrize(
    "mark, is_effect, expected",
    [
        (ToolMark(), True, False),
        (ToolMark(risk=Risk.MED), True, False),
        (ToolMark(risk=Risk.HIGH), True, True),
        (ToolMark(risk=Risk.CRITICAL), True, True),
        (ToolMark(risk=Risk.CRITICAL), False, False),
        (ToolMark(approve=True), True, True),
        (ToolMark(approve=True), False, True),
        (ToolMark(approve=True, risk=Risk.LOW), True, True),
    ],
)
def test_without_a_rule_the_mark_decides(mark: ToolMark, is_effect: bool, expected: bool) -> None:
    assert asks(call(mark=mark, is_effect=is_effect)) is expected


def test_requests_expire_after_24_hours_as_the_manual_states() -> None:
    assert EXPIRES_DEFAULT_S == 24 * 3600
    for ask in (Context.approve, ApprovalRule):
        default = inspect.signature(ask).parameters
        name = "expires_seconds" if "expires_seconds" in default else "expires_s"
        assert default[name].default == EXPIRES_DEFAULT_S
    manual = " ".join((MANUAL / "approvals.md").read_text("utf-8").split())
    assert "expires after 24 hours, unless" in manual


def test_the_first_rule_that_fits_decides() -> None:
    mine = ApprovalRule(approve=False, when={"to": "*@example.com"})
    inside, outside = call(to="a@example.com"), call(to="a@elsewhere.org")
    assert not asks(inside, mine, ASK)
    assert asks(outside, mine, ASK)
    assert asks(inside, ASK, mine)
    assert not asks(call(mark=ToolMark(approve=True, risk=Risk.CRITICAL)), LET)


@pytest.mark.parametrize(
    "tool, pattern, expected",
    [
        ("send_mail", "send_mail", True),
        ("send_mail", "send_*", True),
        ("send_mail", "*", True),
        ("send_mail", "SEND_*", False),
        ("resend_mail", "send_*", False),
    ],
)
def test_a_rule_is_for_tools_by_name_or_glob(tool: str, pattern: str, expected: bool) -> None:
    assert asks(call(tool), ApprovalRule(approve=True, tool=pattern)) is expected


@pytest.mark.parametrize(
    "mark, is_effect, at_least, expected",
    [
        (ToolMark(risk=Risk.HIGH), True, Risk.HIGH, True),
        (ToolMark(risk=Risk.HIGH), True, Risk.CRITICAL, False),
        (ToolMark(risk=Risk.LOW), True, Risk.MED, False),
        (ToolMark(), True, Risk.MED, True),
        (ToolMark(), True, Risk.HIGH, False),
        (ToolMark(), False, Risk.LOW, False),
        (ToolMark(risk=Risk.HIGH), False, Risk.HIGH, True),
    ],
)
def test_a_rule_is_for_risks_from_one_on(
    mark: ToolMark, is_effect: bool, at_least: Risk, expected: bool
) -> None:
    rule = ApprovalRule(approve=True, risk_at_least=at_least)
    assert rule.fits(call(mark=mark, is_effect=is_effect)) is expected


@pytest.mark.parametrize("arguments", [{}, {"amount": "700"}, {"amount": None}, {"amount": [7]}])
def test_undecided_rule_asks_for_approval(arguments: dict[str, Any]) -> None:
    when = {"amount": {"gt": 500}}
    marked = call(mark=ToolMark(approve=True), **arguments)
    assert asks(call(**arguments), ApprovalRule(approve=True, when=when))
    assert asks(marked, ApprovalRule(approve=False, when=when))


def test_rule_falls_back_to_the_tools_mark_and_then_defaults() -> None:
    mark = ToolMark(risk=Risk.LOW, effect="mail leaves", reversible=True)
    of_tool = gate_of(call(mark=mark), [ASK])
    assert of_tool == Gate(
        risk=Risk.LOW,
        effect="mail leaves",
        reversible=True,
        people=1,
        expires_s=EXPIRES_DEFAULT_S,
        on_deny="tell",
        on_expiry="fail",
        reason="rule 1 of the agent's approvals",
    )
    rule = ApprovalRule(
        approve=True,
        risk=Risk.HIGH,
        effect="money leaves",
        reversible=False,
        people=3,
        expires_seconds=60,
        on_deny="fail",
        on_expiry="tell",
        reason="refund > 500",
    )
    assert gate_of(call(mark=mark), [rule]) == Gate(
        risk=Risk.HIGH,
        effect="money leaves",
        reversible=False,
        people=3,
        expires_s=60,
        on_deny="fail",
        on_expiry="tell",
        reason="refund > 500",
    )
    default = gate_of(call(mark=ToolMark(approve=True)), [])
    assert default is not None
    assert (default.risk, default.effect, default.reversible, default.reason) == (
        Risk.MED,
        "runs send_mail",
        None,
        "tool 'send_mail' always asks",
    )
    risky = gate_of(call(mark=ToolMark(risk=Risk.HIGH)), [])
    assert risky is not None
    assert risky.reason == "tool 'send_mail' is of risk HIGH"


def test_critical_call_takes_two_people_under_any_rule() -> None:
    for rule in (ASK, ApprovalRule(approve=True, people=1)):
        gate = gate_of(call(mark=ToolMark(risk=Risk.CRITICAL)), [rule])
        assert gate is not None
        assert gate.people == 2
    assert ApprovalRule(approve=True, people=1).refusal() is None


@pytest.mark.parametrize(
    "changed, path, output",
    [
        ({"when": {"a": {"gt": "x"}}}, ("when", "a"), "has gt, which must be a number"),
        ({"people": 0}, ("people",), "must be from 1 to 10, got 0"),
        ({"people": 11}, ("people",), "must be from 1 to 10, got 11"),
        ({"people": 1, "risk": Risk.CRITICAL}, ("people",), "must be from 2 to 10, got 1"),
        ({"expires_seconds": 59}, ("expires_seconds",), "must be from 60 to 2592000, got 59"),
        ({"expires_seconds": 2_592_001}, ("expires_seconds",), "must be from 60 to 2592000"),
        ({"effect": " "}, ("effect",), "must have from 1 to 500 characters, got 1"),
        ({"reason": "x" * 501}, ("reason",), "must have from 1 to 500 characters, got 501"),
    ],
)
def test_invalid_rule_is_refused_with_its_field(
    changed: dict[str, Any], path: tuple[str, ...], output: str
) -> None:
    refusal = attrs.evolve(ASK, **changed).refusal()
    assert refusal is not None
    assert refusal[0] == path
    assert refusal[1].startswith(output)


def test_policy_edge_values_are_allowed() -> None:
    for expires_s in (60, 2_592_000):
        assert attrs.evolve(ASK, expires_seconds=expires_s, people=10).refusal() is None


PAYMENTS = (
    ApprovalRule(approve=False, tool="pay", when={"euros": {"gt": 0, "le": 10}}),
    ApprovalRule(approve=True, tool="pay", when={"euros": {"gt": 1000}}, risk=Risk.CRITICAL),
    ApprovalRule(approve=True, tool="pay", when={"euros": {"ge": 0}}),
)


@pytest.mark.parametrize(
    "euros, under, needed",
    [
        (16, ApprovalTerms(Risk.HIGH, 1), None),
        (5, ApprovalTerms(Risk.HIGH, 1), None),
        (1500, ApprovalTerms(Risk.HIGH, 1), Risk.CRITICAL),
        (1500, ApprovalTerms(Risk.CRITICAL, 2), None),
    ],
)
def test_edit_needs_the_approval_its_call_would_need(
    euros: int, under: ApprovalTerms, needed: Risk | None
) -> None:
    first = 2000 if under.risk is Risk.CRITICAL else 15
    found = beyond(call("pay", euros=first), {"euros": euros}, under=under, rules=PAYMENTS)
    assert (None if found is None else found.risk) is needed


def test_unknown_mark_refuses_no_edit_it_might_allow() -> None:
    by_risk = (ApprovalRule(approve=True, risk_at_least=Risk.HIGH), ApprovalRule(approve=True))
    under = ApprovalTerms(Risk.MED, 1)
    assert beyond(call("pay", euros=1), {"euros": 2}, under=under, rules=by_risk) is None


def test_rules_come_back_from_json() -> None:
    plain = attrs.asdict(PAYMENTS[1]) | {"risk": "CRITICAL"}
    assert rules_from_json([plain]) == (PAYMENTS[1],)
