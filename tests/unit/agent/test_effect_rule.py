"""The effects that a tool declares: the rule for a call, and invalid declarations."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest

from cortex.agent.tools.effect_rule import EffectRule
from cortex.agent.tools.http_request import http_request
from cortex.agent.tools.tool import AnyTool, tool
from cortex.domain.approvals.approval import Risk
from cortex.domain.approvals.rules import ApprovalRule, ToolMark
from cortex.domain.argument_check import misfits
from cortex.domain.canonical import canonical
from cortex.domain.effect import Invocation, NotApplied, Verdict
from cortex.domain.errors import UsageError


async def ask(invocation: Invocation) -> Verdict:
    return NotApplied()


def made(**words: Any) -> AnyTool:
    @tool(name="pay", **words)
    async def pay(amount: int = 1) -> None:
        """Pay."""

    return pay


def rule(of: AnyTool, **given: object) -> EffectRule | None:
    return of.effect_of(of.parse(given))


def test_tool_has_no_effect_by_default() -> None:
    plain = made()
    assert rule(plain) is None
    assert plain.declared.mark == ToolMark()
    assert plain.gate(plain.parse({}), []) is None


def test_constant_effect_rule_applies_to_every_call() -> None:
    pay = made(
        effect=True, idempotent=True, reconcile=ask, risk="HIGH", reversible=False, says="money"
    )
    assert rule(pay) == EffectRule(is_idempotent=True, reconcile=ask)
    assert pay.declared.mark == ToolMark(risk=Risk.HIGH, effect="money", reversible=False)
    assert rule(made(effect=True)) == EffectRule(is_idempotent=False, reconcile=None)


def test_effect_rule_may_depend_on_the_arguments() -> None:
    pay = made(effect=lambda given: given.amount > 0, idempotent=lambda given: given.amount < 5)
    assert rule(pay, amount=0) is None
    assert rule(pay, amount=1) == EffectRule(is_idempotent=True, reconcile=None)
    assert rule(pay, amount=5) == EffectRule(is_idempotent=False, reconcile=None)


def test_a_function_that_gives_no_truth_value_stops_the_call() -> None:
    for word in ({"effect": lambda _: 1}, {"effect": True, "idempotent": lambda _: None}):
        with pytest.raises(UsageError, match=r"tool 'pay': (effect|idempotent) returned (1|None)"):
            rule(made(**word))


@pytest.mark.parametrize(
    "words, output",
    [
        ({"idempotent": True}, "idempotent without an effect"),
        ({"reconcile": ask}, "reconcile without an effect"),
        ({"approve": True, "reconcile": ask}, "reconcile without an effect"),
        ({"risk": "HIGH"}, "risk without an effect"),
        ({"says": "x"}, "says without an effect"),
        ({"reversible": False}, "reversible without an effect"),
        ({"effect": "yes"}, "effect is 'yes'"),
        ({"effect": ask}, "effect is <function ask"),
        ({"effect": True, "idempotent": 1}, "idempotent is 1"),
        ({"effect": True, "approve": 1}, "approve is 1"),
        ({"effect": True, "risk": "high"}, "risk is 'high'"),
        ({"effect": True, "reversible": "no"}, "reversible is 'no'"),
        ({"effect": True, "says": " "}, "says is ' '"),
        ({"effect": True, "says": 3}, "says is 3"),
        ({"effect": True, "says": "x" * 501}, "says is 'xxx"),
        ({"effect": True, "reconcile": lambda _: None}, "reconcile is no async function"),
    ],
)
def test_contradictory_declarations_are_refused(words: dict[str, Any], output: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(**words)
    assert caught.value.message.startswith(f"tool 'pay': {output}")
    assert caught.value.hint


def _one_too_many() -> Callable[..., Any]:
    async def reconcile(invocation: Invocation, more: int) -> Verdict:
        return NotApplied()

    return reconcile


def _one_too_few() -> Callable[..., Any]:
    async def reconcile() -> Verdict:
        return NotApplied()

    return reconcile


@pytest.mark.parametrize("reconcile", [_one_too_many(), _one_too_few()], ids=["two", "none"])
def test_reconcile_takes_exactly_the_invocation(reconcile: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="reconcile cannot be called"):
        made(effect=True, reconcile=reconcile)


def test_a_misspelt_word_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'efect'"):
        made(efect=True)


def test_marks_and_rules_decide_together() -> None:
    pay = made(effect=lambda given: given.amount > 0, risk="HIGH", says="money leaves")
    small = ApprovalRule(approve=False, when={"amount": {"lt": 5}})
    nothing, little, much = (pay.parse({"amount": each}) for each in (0, 4, 5))
    assert pay.gate(nothing, []) is None
    assert pay.gate(little, [small]) is None
    gate = pay.gate(much, [small])
    assert gate is not None
    assert (gate.risk, gate.effect) == (Risk.HIGH, "money leaves")
    always = made(approve=True)
    assert always.gate(always.parse({}), []) is not None


@pytest.mark.parametrize(
    "method, expected",
    [
        ("GET", None),
        ("HEAD", None),
        ("OPTIONS", None),
        ("POST", EffectRule(is_idempotent=False, reconcile=None)),
        ("PATCH", EffectRule(is_idempotent=False, reconcile=None)),
        ("PUT", EffectRule(is_idempotent=True, reconcile=None)),
        ("DELETE", EffectRule(is_idempotent=True, reconcile=None)),
    ],
)
def test_a_request_is_an_effect_by_its_method(method: str, expected: EffectRule | None) -> None:
    assert rule(http_request, url="http://example.org/", method=method) == expected


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


@attrs.frozen
class Place:
    city: str
    label: str = attrs.field(init=False, default="derived")
    zone: int | None = None


@tool
async def everything(
    place: Place,
    at: datetime,
    path: Path,
    weight: float,
    *,
    unit: Unit = Unit.METRE,
    day: date = date(2026, 1, 31),
    ids: tuple[UUID, ...] = (UUID(int=7),),
    mode: Literal["fast", 1] = "fast",
    labels: dict[str, Place] | None = None,
    anything: Any = None,
) -> None:
    """Take one of each type."""


def test_canonical_arguments_parse_to_the_same_call() -> None:
    given: dict[str, Any] = {
        "place": {"city": "Bern"},
        "at": "2026-01-31T12:00:00Z",
        "path": "a//b",
        "weight": 3,
        "labels": {"x": {"city": "Basel", "zone": 2}},
        "anything": [{"a": 10**30}],
    }
    parsed = everything.parse(given)
    shown = everything.canonical(parsed)
    assert shown == {
        "place": {"city": "Bern", "zone": None},
        "at": "2026-01-31T12:00:00+00:00",
        "path": "a/b",
        "weight": 3.0,
        "unit": "m",
        "day": "2026-01-31",
        "ids": ["00000000-0000-0000-0000-000000000007"],
        "mode": "fast",
        "labels": {"x": {"city": "Basel", "zone": 2}},
        "anything": [{"a": 10**30}],
    }
    again = everything.parse(shown)
    assert again == parsed
    assert again.at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert canonical(everything.canonical(again)) == canonical(shown)
    assert misfits(everything.input_schema, shown) == []
