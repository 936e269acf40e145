"""The effects that the author of a tool declares, beside `@tool`.

    @tool(effect=True, reconcile=find_payment, risk="HIGH", reversible=False, says="money leaves")

`effect` and `idempotent` may depend on the call: then they are functions of its arguments, as
attributes, that return True or False.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypedDict

import attrs

from cortex.domain.approvals.approval import Risk
from cortex.domain.approvals.rules import WORDS_MAX, ToolMark
from cortex.domain.effect import Invocation, Verdict
from cortex.domain.errors import UsageError

Claim: TypeAlias = bool | Callable[[Any], bool]
"""True or False for all calls of a tool, or a function of a call's arguments."""
Reconcile: TypeAlias = Callable[[Invocation], Awaitable[Verdict]]


class EffectWords(TypedDict, total=False):
    """The keyword arguments of `@tool` about effects; nothing is declared by default."""

    effect: Claim
    """A call changes something outside, which must not happen twice."""
    idempotent: Claim
    """The other side applies it once for each invocation id, however often it is called."""
    reconcile: Reconcile
    """Asks the other side about a call whose outcome was not recorded."""
    risk: Literal["LOW", "MED", "HIGH", "CRITICAL"]
    """From HIGH an effect waits for people, unless the agent's rules say otherwise."""
    reversible: bool | None
    """Whether it can be undone."""
    approve: bool
    """Every call waits for people, unless the agent's rules say otherwise."""
    says: str
    """What happens outside, for the people who approve it."""


@attrs.frozen(kw_only=True)
class EffectRule:
    """How a call with an outside result is continued when its outcome was not recorded.

    `reconcile` asks the other side. Without it, an idempotent call is repeated with the same
    invocation id, and for any other call a person decides.
    """

    is_idempotent: bool
    reconcile: Reconcile | None


@attrs.frozen(kw_only=True)
class Declared:
    """The declarations for all calls of one tool."""

    effect: Claim = False
    idempotent: Claim = False
    reconcile: Reconcile | None = None
    mark: ToolMark = attrs.field(default=ToolMark())

    def rule(self, tool: str, arguments: Any) -> EffectRule | None:
        """Return the rule for a call with these arguments; None if it changes nothing outside.

        Raises `UsageError` when the tool's own function does not return a bool: it must not run
        then.
        """
        if not _answer(self.effect, arguments, what=f"tool {tool!r}: effect"):
            return None
        is_idempotent = _answer(self.idempotent, arguments, what=f"tool {tool!r}: idempotent")
        return EffectRule(is_idempotent=is_idempotent, reconcile=self.reconcile)


def declared(tool: str, words: EffectWords) -> Declared:
    """Check a tool's declarations. Raises `UsageError` with the tool and the keyword."""
    unknown = words.keys() - EffectWords.__annotations__.keys()
    if unknown:
        raise TypeError(f"tool() got an unexpected keyword argument {min(unknown)!r}")
    effect = _claim(tool, words, "effect")
    idempotent = _claim(tool, words, "idempotent")
    approve = words.get("approve", False)
    if not isinstance(approve, bool):
        raise _refused(tool, f"approve is {approve!r}", "write True or False")
    if effect is False:
        _refuse_idle(tool, words, is_asked_of_people=approve)
    return Declared(
        effect=effect,
        idempotent=idempotent,
        reconcile=_reconcile(tool, words.get("reconcile")),
        mark=ToolMark(
            risk=_risk(tool, words.get("risk")),
            effect=_says(tool, words.get("says")),
            reversible=_reversible(tool, words.get("reversible")),
            approve=approve,
        ),
    )


def _refuse_idle(tool: str, words: EffectWords, *, is_asked_of_people: bool) -> None:
    """Refuse keywords about an effect that is not declared: it was probably forgotten."""
    for name in ("idempotent", "reconcile"):
        if words.get(name):
            raise _refused(tool, f"{name} without an effect", "declare effect=True as well")
    for name in () if is_asked_of_people else ("risk", "reversible", "says"):
        if words.get(name) is not None:
            hint = "declare effect=True, or approve=True to have people asked"
            raise _refused(tool, f"{name} without an effect", hint)


def _answer(claim: Claim, arguments: Any, *, what: str) -> bool:
    if isinstance(claim, bool):
        return claim
    answer = claim(arguments)
    if not isinstance(answer, bool):
        raise UsageError(f"{what} returned {answer!r:.80}", hint="it must return True or False")
    return answer


def _claim(tool: str, words: EffectWords, name: Literal["effect", "idempotent"]) -> Claim:
    claim = words.get(name, False)
    if not _is_claim(claim):
        raise _refused(tool, f"{name} is {claim!r:.80}", "write True, False or a plain function")
    return claim


def _is_claim(value: object) -> bool:
    if isinstance(value, bool):
        return True
    return callable(value) and not inspect.iscoroutinefunction(value)


def _reconcile(tool: str, reconcile: Reconcile | None) -> Reconcile | None:
    if reconcile is None:
        return None
    if not inspect.iscoroutinefunction(reconcile):
        raise _refused(tool, "reconcile is no async function", "write async def")
    try:
        inspect.signature(reconcile).bind(object())
    except TypeError as error:
        hint = "it takes one argument, the Invocation"
        raise _refused(tool, f"reconcile cannot be called: {error}", hint) from error
    return reconcile


def _risk(tool: str, risk: str | None) -> Risk | None:
    if risk is None:
        return None
    try:
        return Risk(risk)
    except ValueError:
        raise _refused(tool, f"risk is {risk!r}", f"one of {', '.join(Risk)}") from None


def _reversible(tool: str, reversible: object) -> bool | None:
    if reversible is None or isinstance(reversible, bool):
        return reversible
    raise _refused(tool, f"reversible is {reversible!r}", "write True, False or None (unknown)")


def _says(tool: str, says: object) -> str | None:
    if says is None:
        return None
    if not isinstance(says, str) or not 0 < len(says.strip()) <= len(says) <= WORDS_MAX:
        raise _refused(tool, f"says is {says!r:.80}", f"write 1 to {WORDS_MAX} characters")
    return says


def _refused(tool: str, wrong: str, hint: str) -> UsageError:
    return UsageError(f"tool {tool!r}: {wrong}", hint=hint)
