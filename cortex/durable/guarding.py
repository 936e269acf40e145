"""A call behind its circuit breaker: it counts failures of the other side; an open one waits."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs

from cortex.domain.classification import failure_of, mark_source
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import TransientError
from cortex.domain.failure import UNKNOWN
from cortex.durable.attempt import Attempt
from cortex.durable.calls import Admission
from cortex.durable.effects import NotDone

WAITS_MAX: Final = 5
"""How many times in a row a job waits for a breaker; then its agent is informed, or the job
fails."""

Guard = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


def guard_of(attempt: Attempt, breaker: str | None, *, step: str) -> Guard:
    """Return what awaits a call of a step behind this breaker; None: nothing guards it."""
    return _unguarded if breaker is None else partial(_guarded, attempt, breaker, step=step)


async def _unguarded(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


async def _guarded(
    attempt: Attempt, name: str, call: Callable[[], Awaitable[Any]], *, step: str
) -> Any:
    """Make a call behind its breaker, which counts transient failures of the other side.

    An error of unknown origin is probably the tool's own mistake. A returned failure (`NotDone`)
    counts like a raised one.
    """
    async with _admitted(attempt, name) as admission:
        try:
            result = await call()
        except Exception as error:
            await _report(attempt, admission, error, name=name, step=step)  # noqa: ASYNC120 -- a cancellation wins
            raise
        if isinstance(result, NotDone):
            await _report(attempt, admission, result.error, name=name, step=step)
        else:
            await admission.succeeded()
        return result


async def _report(
    attempt: Attempt, admission: Admission, error: Exception, *, name: str, step: str
) -> None:
    """Count a failure. Raises `Suspended` when it opened the breaker, within a bound."""
    mark_source(error, name)
    failure = attrs.evolve(failure_of(error), source=name)
    if not failure.cls.is_transient or failure.code == UNKNOWN:
        return
    try:
        await admission.failed(failure)
    except Suspended as suspended:  # nothing else would record what opened it
        if attempt.waits_count >= WAITS_MAX:
            return
        resolution = f"the job waits for {suspended.waiting_on}"
        caller = await attempt.caller(step)  # noqa: ASYNC120 -- a cancellation wins
        note = partial(attempt.services.facts.failed, caller, failure, resolution=resolution)
        await note(goes_on=False)  # noqa: ASYNC120 -- a cancellation wins
        raise


@asynccontextmanager
async def _admitted(attempt: Attempt, name: str) -> AsyncIterator[Admission]:
    """Wait until a call may begin, a limited number of times; then an open breaker fails it."""
    async with AsyncExitStack() as stack:
        try:
            admission = await stack.enter_async_context(attempt.services.breakers.admit(name))
        except Suspended as suspended:
            if attempt.waits_count < WAITS_MAX:
                raise
            hint = f"the job waited for it {attempt.waits_count} times"
            error = TransientError(suspended.reason, hint=hint)
            mark_source(error, name)
            raise error from None
        yield admission
