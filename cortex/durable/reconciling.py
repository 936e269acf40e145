"""Asking the other side what became of a call, by a function of somebody's own code."""

import inspect
from collections.abc import Callable
from typing import Any, Final, get_type_hints

import trio

from cortex.domain.classification import failure_of
from cortex.domain.effect import Applied, Invocation, NotApplied, Unknown, Verdict
from cortex.domain.errors import TimedOutError
from cortex.domain.failure_codes import UNKNOWN
from cortex.durable.threads import called

LIMIT_S: Final = 30.0
"""The most that one question may take."""

Reconcile = Callable[[Invocation], Any]
"""Async, or to be run in a thread."""


async def asked(
    reconcile: Reconcile, invocation: Invocation, *, limit_s: float = LIMIT_S
) -> Verdict:
    """Return what a reconcile function says; what it says wrongly means that nobody knows.

    Raises what passes, such as a refused connection, and `TimedOutError`: to be asked later.
    """
    with trio.move_on_after(limit_s):
        try:
            verdict = await called(reconcile, invocation)
        except Exception as error:
            if passes(error):
                raise
            return Unknown(f"reconcile failed: {failure_of(error).message}")
        if isinstance(verdict, Applied | NotApplied | Unknown):
            return verdict
        kind = type(verdict).__name__
        return Unknown(f"reconcile returned {kind}, not Applied, NotApplied or Unknown")
    told = f"reconcile of {invocation.tool} took longer than {limit_s:g} seconds"
    raise TimedOutError(told, scope="call", limit_s=limit_s)


def passes(error: Exception) -> bool:
    """Whether an error says that the other side cannot be asked just now."""
    failure = failure_of(error)
    return failure.cls.is_transient and failure.code != UNKNOWN


def takes_invocation(function: Callable[..., Any]) -> bool:
    """Whether a function's first parameter is annotated `Invocation`."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
        hints = get_type_hints(function)
    except (TypeError, ValueError, NameError):  # callables without a signature, unknown names
        return False
    return first is not None and hints.get(first.name) is Invocation
