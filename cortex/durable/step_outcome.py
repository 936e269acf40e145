"""The outcome of a step's function, within the time that it may take."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import trio

from cortex.domain.errors import TimedOutError
from cortex.domain.hot import hot
from cortex.domain.job import EffectOutcome
from cortex.domain.usage import Usage
from cortex.durable.step_scope import StepScope
from cortex.durable.threads import thread_for

StepLimit = float | Callable[[], Awaitable[float]]
"""Seconds, or what finds them once the step runs."""


@hot(kw_only=True)
class StepOutcome:
    """The result of a step for its journal."""

    value: Any
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    effect: EffectOutcome | None = None
    """The outcome of an effect step: recorded with the step, at once."""


async def outcome_of(run: Callable[[], Awaitable[Any]]) -> StepOutcome:
    """Await the value of a step that has no limit of its own."""
    return StepOutcome(value=await run())


async def outcome_within(
    scope: StepScope, run: Callable[[], Awaitable[Any]], key: str, limit_s: float
) -> StepOutcome:
    """Await the value of step `key` in a scope that other steps have, too, where that is possible.

    Raises `TimedOutError` a little after its limit in seconds.
    """
    if not scope.begin(limit_s):
        with trio.CancelScope(deadline=trio.current_time() + limit_s):
            return StepOutcome(value=await run())
        # A step around this one began earlier, so its time is over, too: that one is what ends.
        scope.cancel_overdue(trio.current_time())
        await trio.lowlevel.checkpoint_if_cancelled()
        raise timed_out(key, limit_s)
    try:
        value = await run()
    except BaseException as error:  # noqa: ASYNC103 -- raised unless it is the scope's own
        if not scope.end(error):
            raise
    else:
        scope.end()
        return StepOutcome(value=value)
    raise timed_out(key, limit_s)


async def outcome_in_thread(
    function: Callable[..., Any], run: Callable[[], Awaitable[Any]], key: str, limit_s: StepLimit
) -> StepOutcome:
    """Await the value of step `key`, a function in a thread; its time starts with the thread."""
    seconds = await limit_s() if callable(limit_s) else limit_s
    async with thread_for(function):
        with trio.CancelScope(deadline=trio.current_time() + seconds):
            return StepOutcome(value=await run())
    raise timed_out(key, seconds)


def timed_out(key: str, limit_s: float) -> TimedOutError:
    """Return the error of a step that took longer than its limit."""
    message = f"step {key!r} took longer than {limit_s:g} seconds"
    return TimedOutError(message, scope="step", limit_s=limit_s)
