"""Which calls people must approve: the tool author's marks, under the rules of the agent.

The first rule that fits a call decides. If an argument is missing or has another type than the rule
compares it with, a rule that asks people fits, and a rule that permits the call does not.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, Final, TypeAlias

import attrs

from cortex.domain.approvals.approval import PEOPLE_MAX, Follow, Risk
from cortex.domain.approvals.defaults import (
    EXPIRES_DEFAULT_S,
    ON_DENY_DEFAULT,
    ON_EXPIRY_OF_TOOL,
    RISK_DEFAULT,
)
from cortex.domain.canonical import MISSING, find
from cortex.domain.redaction import LONE_SURROGATE

# --- Patterns for the arguments of a call, as people write them in YAML.


_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_OPERATORS: Final = (*_ORDERS, "not", "in")


def matches(patterns: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool | None:
    """Return whether the arguments match all patterns; None if one of them is undecidable."""
    return _all(_match(pattern, find(arguments, path)) for path, pattern in patterns.items())


def refusal(path: str, pattern: Any) -> str | None:
    """Return what is wrong with a pattern, continuing after its path; None if it is valid."""
    if not all(path.split(".")):
        return "is no path to an argument"
    if not isinstance(pattern, dict):
        return None if _is_scalar(pattern) else f"must be {_SCALARS} or a comparison{_got(pattern)}"
    if not pattern:
        return f"compares with nothing; known: {', '.join(_OPERATORS)}"
    return next(filter(None, (_refusal(name, to) for name, to in pattern.items())), None)


_SCALARS: Final = "text, a number, true, false, null"


def _refusal(name: str, to: Any) -> str | None:
    if name not in _OPERATORS:
        return f"has the unknown comparison {name!r}; known: {', '.join(_OPERATORS)}"
    if name in _ORDERS:
        return None if _is_number(to) else f"has {name}, which must be a number{_got(to)}"
    if name == "not":
        return None if _is_scalar(to) else f"has not, which must be {_SCALARS}{_got(to)}"
    is_list = isinstance(to, list) and bool(to) and all(map(_is_scalar, to))
    return None if is_list else f"has in, which must be a list of {_SCALARS}{_got(to)}"


def _got(value: Any) -> str:
    return f", got {value!r:.80}"


def _match(pattern: Any, value: Any) -> bool | None:
    if not isinstance(pattern, dict):
        return _equal(pattern, value)
    return _all(_compare(name, to, value) for name, to in pattern.items())


def _compare(name: str, to: Any, value: Any) -> bool | None:
    if name == "not":
        return _not(_equal(to, value))
    if name == "in":
        return _not(_all(_not(_equal(each, value)) for each in to))
    return _ORDERS[name](value, to) if _is_number(value) else None


def _equal(pattern: Any, value: Any) -> bool | None:
    """Null compares with everything, anything else with its own type only: true is not 1."""
    if value is MISSING:
        return None
    if pattern is None:
        return value is None
    if isinstance(pattern, str):
        return fnmatchcase(value, pattern) if isinstance(value, str) else None
    if isinstance(pattern, bool):
        return value is pattern if isinstance(value, bool) else None
    return bool(value == pattern) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (isinstance(value, int) or math.isfinite(value))


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value and LONE_SURROGATE.search(value) is None
    return value is None or isinstance(value, bool) or _is_number(value)


# Three-valued logic: None means undecidable.


def _not(answer: bool | None) -> bool | None:  # noqa: FBT001 -- what it negates
    return None if answer is None else not answer


def _all(answers: Iterable[bool | None]) -> bool | None:
    outcomes = set(answers)
    return False if False in outcomes else None if None in outcomes else True


# ---


RULES_MAX: Final = 100
EXPIRES_S: Final = (60, 30 * 86_400)
"""The least and the most."""
WORDS_MAX: Final = 500
"""Characters of an effect or a reason."""


@attrs.frozen(kw_only=True)
class ToolMark:
    """A tool author's marks about its danger; None: unmarked."""

    risk: Risk | None = None
    effect: str | None = None
    """What happens outside, as text."""
    reversible: bool | None = None
    approve: bool = False
    """Whether each call needs people, unless a rule says otherwise."""


@attrs.frozen(kw_only=True)
class GatedCall:
    """A call to be judged; the arguments are plain JSON."""

    tool: str
    arguments: Mapping[str, Any]
    is_effect: bool
    mark: ToolMark


@attrs.frozen(kw_only=True)
class ApprovalRule:
    """One rule, as a person writes it; None leaves it to the tool."""

    approve: bool
    """False permits the call, however it is marked."""
    tool: str = "*"
    """Name or glob."""
    when: dict[str, Any] = attrs.field(factory=dict)
    """Patterns by the path of an argument, all of which must hold."""
    risk_at_least: Risk | None = None
    """Only tools declared with at least this risk."""
    risk: Risk | None = None
    effect: str | None = None
    reversible: bool | None = None
    people: int | None = None
    """Different people who must agree; two for CRITICAL, else one."""
    expires_seconds: int = EXPIRES_DEFAULT_S
    on_deny: Follow = ON_DENY_DEFAULT
    on_expiry: Follow = ON_EXPIRY_OF_TOOL
    reason: str | None = None
    """Shown as the policy that requires approval."""

    def refusal(self) -> tuple[tuple[str, ...], str] | None:
        """Return the path to the first problem, and the problem; None if it is valid."""
        for path, pattern in self.when.items():
            if wrong := refusal(path, pattern):
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
        """Return whether it covers any of these tools; one for all tools always does."""
        return self.tool == "*" or any(fnmatchcase(each, self.tool) for each in tools)

    def fits(self, call: GatedCall) -> bool:
        """Return whether it decides this call; if undecidable, it does if it asks people."""
        if not fnmatchcase(call.tool, self.tool):
            return False
        if self.risk_at_least is not None:
            risk = call.mark.risk or (RISK_DEFAULT if call.is_effect else None)
            if risk is None or risk.rank < self.risk_at_least.rank:
                return False
        held = matches(self.when, call.arguments)
        return self.approve if held is None else held


@attrs.frozen(kw_only=True)
class Gate:
    """The question for people before a call runs."""

    risk: Risk
    effect: str
    """What happens outside, as text."""
    reversible: bool | None
    people: int
    """Different people who must agree."""
    expires_s: int
    on_deny: Follow
    on_expiry: Follow
    reason: str
    """The policy that requires it, as text."""


@attrs.frozen
class ApprovalTerms:
    """The terms of an approval: the risk, and how many people must agree."""

    risk: Risk
    people: int


Rules: TypeAlias = Sequence[ApprovalRule]
_RISKS: Final = frozenset({"risk", "risk_at_least"})
_MARKS: Final = tuple(
    ToolMark(risk=risk, approve=approve) for risk in (None, *Risk) for approve in (True, False)
)


def gate_of(call: GatedCall, rules: Sequence[ApprovalRule]) -> Gate | None:
    """Return the question for people before this call; None if it may run at once."""
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
    """Return the rules of an agent's stored specification."""

    def rule(fields: Mapping[str, Any]) -> ApprovalRule:
        risks = {name: Risk(fields[name]) for name in _RISKS if fields.get(name) is not None}
        return ApprovalRule(**{**fields, **risks})

    return tuple(map(rule, stored))


def beyond(
    asked: GatedCall, edited: Mapping[str, Any], *, under: ApprovalTerms, rules: Rules
) -> Gate | None:
    """Return the gate for the edited call if it needs more than the agreement `under`.

    Only pods know a tool's mark, so the mark of `asked` is ignored: it may be any under which the
    rules require the original question. None if one of these covers the edit; the pod that makes
    the call judges again.
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


def _gate(call: GatedCall, rule: ApprovalRule, reason: str) -> Gate:
    """The rule's text before the tool's before the defaults; at least the risk's people."""
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
