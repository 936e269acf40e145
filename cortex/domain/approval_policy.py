"""Which calls people must approve: what a tool's author marked, under the rules of the agent.

The first rule that fits a call decides. Where an argument is missing or of another type than a rule
compares it with, the rule fits if it asks people, and does not if it lets the call through.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Final, Literal, TypeAlias

import attrs

from cortex.domain import argument_match
from cortex.domain.approval import EXPIRES_DEFAULT_S, PEOPLE_MAX, Risk

RULES_MAX: Final = 100
EXPIRES_S: Final = (60, 30 * 86_400)
"""The least and the most."""
WORDS_MAX: Final = 500
"""Characters of an effect or a reason."""
RISK_DEFAULT: Final = Risk.MED
"""Of an effect of which nobody said how dangerous it is."""

Follow: TypeAlias = Literal["tell", "fail"]
"""What follows: the agent is told and goes on, or the job fails."""


@attrs.frozen(kw_only=True)
class Mark:
    """What a tool's author says of its danger; None: nothing."""

    risk: Risk | None = None
    effect: str | None = None
    """What happens outside, in words."""
    reversible: bool | None = None
    approve: bool = False
    """Whether each call needs people, unless a rule says otherwise."""


@attrs.frozen(kw_only=True)
class Call:
    """A call that is to be judged; the arguments are plain JSON."""

    tool: str
    arguments: Mapping[str, Any]
    is_effect: bool
    mark: Mark


@attrs.frozen(kw_only=True)
class ApprovalRule:
    """One rule, as a person writes it; None leaves it to the tool."""

    approve: bool
    """False lets the call through, however it is marked."""
    tool: str = "*"
    """Name or glob."""
    when: dict[str, Any] = attrs.field(factory=dict)
    """Patterns by the path of an argument, all of which must hold; see `argument_match`."""
    risk_at_least: Risk | None = None
    """Only tools declared with such a risk."""
    risk: Risk | None = None
    effect: str | None = None
    reversible: bool | None = None
    people: int | None = None
    """Different people who must agree; two for CRITICAL, else one."""
    expires_seconds: int = EXPIRES_DEFAULT_S
    on_deny: Follow = "tell"
    on_expiry: Follow = "fail"
    reason: str | None = None
    """Shown as the policy that asks."""

    def refusal(self) -> tuple[tuple[str, ...], str] | None:
        """The path to what is wrong in it, and what; None if nothing is."""
        for path, pattern in self.when.items():
            if wrong := argument_match.refusal(path, pattern):
                return ("when", path), wrong
        least = 1 if self.risk is None else self.risk.people_min
        if self.people is not None and not least <= self.people <= PEOPLE_MAX:
            return ("people",), f"must be from {least} to {PEOPLE_MAX}, got {self.people}"
        low, high = EXPIRES_S
        if not low <= self.expires_seconds <= high:
            return ("expires_seconds",), f"must be from {low} to {high}, got {self.expires_seconds}"
        for name, words in (("effect", self.effect), ("reason", self.reason)):
            if words is not None and not 0 < len(words.strip()) <= len(words) <= WORDS_MAX:
                return (name,), f"must have from 1 to {WORDS_MAX} characters, got {len(words)}"
        return None

    def names_one_of(self, tools: Sequence[str]) -> bool:
        """Whether it is for any of these tools; one for all tools always is."""
        return self.tool == "*" or any(fnmatchcase(each, self.tool) for each in tools)

    def fits(self, call: Call) -> bool:
        """Whether it decides this call; in doubt it does if it asks people."""
        if not fnmatchcase(call.tool, self.tool):
            return False
        if self.risk_at_least is not None:
            risk = call.mark.risk or (RISK_DEFAULT if call.is_effect else None)
            if risk is None or risk.rank < self.risk_at_least.rank:
                return False
        held = argument_match.matches(self.when, call.arguments)
        return self.approve if held is None else held


@attrs.frozen(kw_only=True)
class Gate:
    """What is asked of people before a call runs."""

    risk: Risk
    effect: str
    """What happens outside, in words."""
    reversible: bool | None
    people: int
    """Different people who must agree."""
    expires_s: int
    on_deny: Follow
    on_expiry: Follow
    reason: str
    """The policy that asks, in words."""


@attrs.frozen
class Agreed:
    """What people were asked for: how dangerous it is, and how many of them must agree."""

    risk: Risk
    people: int


Rules: TypeAlias = Sequence[ApprovalRule]
_RISKS: Final = frozenset({"risk", "risk_at_least"})
_MARKS: Final = tuple(
    Mark(risk=risk, approve=approve) for risk in (None, *Risk) for approve in (True, False)
)


def gate_of(call: Call, rules: Sequence[ApprovalRule]) -> Gate | None:
    """What must be asked of people before this call; None if it may run at once."""
    for number, rule in enumerate(rules, start=1):
        if rule.fits(call):
            return (
                _gate(call, rule, f"rule {number} of the agent's approvals")
                if rule.approve
                else None
            )
    mark = call.mark
    if mark.approve:
        return _gate(call, ApprovalRule(approve=True), f"tool {call.tool!r} always asks")
    if call.is_effect and mark.risk is not None and mark.risk.rank >= Risk.HIGH.rank:
        return _gate(call, ApprovalRule(approve=True), f"tool {call.tool!r} is of risk {mark.risk}")
    return None


def rules_from_json(stored: Sequence[Mapping[str, Any]]) -> tuple[ApprovalRule, ...]:
    """Return the rules of an agent as its specification is stored."""

    def rule(fields: Mapping[str, Any]) -> ApprovalRule:
        risks = {name: Risk(fields[name]) for name in _RISKS if fields.get(name) is not None}
        return ApprovalRule(**{**fields, **risks})

    return tuple(map(rule, stored))


def beyond(asked: Call, edited: Mapping[str, Any], *, under: Agreed, rules: Rules) -> Gate | None:
    """Return what must be asked before the edited call if more than is `under` agreement now.

    Only pods know a tool's mark, so the mark of `asked` is not looked at: it may be any under which
    the rules ask for what was asked. None if one of them covers the edit; the pod that makes the
    call judges again.
    """
    needed: Gate | None = None
    for mark, is_effect in product(_MARKS, (True, False)):
        call = attrs.evolve(asked, mark=mark, is_effect=is_effect)
        gate = gate_of(call, rules)
        if gate is None or (gate.risk, gate.people) != (under.risk, under.people):
            continue
        needed = gate_of(attrs.evolve(call, arguments=edited), rules)
        if needed is None or (
            needed.risk.rank <= under.risk.rank and needed.people <= under.people
        ):
            return None
    return needed


def _gate(call: Call, rule: ApprovalRule, reason: str) -> Gate:
    """The rule's words before the tool's before the defaults; never fewer people than the risk."""
    mark = call.mark
    risk = rule.risk or mark.risk or RISK_DEFAULT
    return Gate(
        risk=risk,
        effect=rule.effect or mark.effect or f"runs {call.tool}",
        reversible=mark.reversible if rule.reversible is None else rule.reversible,
        people=max(rule.people or 1, risk.people_min),
        expires_s=rule.expires_seconds,
        on_deny=rule.on_deny,
        on_expiry=rule.on_expiry,
        reason=rule.reason or reason,
    )
