"""Repeats a call inside its step: for calls that may be made twice, while the step has time."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from cortex.domain.classification import failure_of
from cortex.domain.failure import Failure
from cortex.domain.retry import CallRetry
from cortex.durable.calls import Caller, Facts

T = TypeVar("T")


async def repeated(
    call: Callable[[], Awaitable[T]],
    *,
    caller: Caller,
    facts: Facts,
    rng: random.Random,
    final: tuple[type[Exception], ...] = (),
) -> T:
    """Await `call()`; after a transient failure, repeat it after a pause.

    Raises the call's error when it is permanent or of a class in `final`, when its attempts are
    used up, or when the pause does not fit into what is left of the enclosing scopes. Each repeated
    failure is recorded as a fact, and so is its recovery.
    """
    fact_ids: list[int] = []
    failures = 0
    while True:
        try:
            result = await call()
        except final:
            raise
        except Exception as error:
            failures += 1
            failure = failure_of(error)
            pause_s = _pause_s(failure, failures, retry=caller.retry, rng=rng)
            if pause_s is None:
                raise
            resolution = f"called again in {pause_s:.1f} s"
            fact_ids += await facts.failed(caller, failure, resolution=resolution, number=failures)
        else:
            if fact_ids:
                await facts.resolved(caller, fact_ids)
            return result
        await trio.sleep(pause_s)


def _pause_s(
    failure: Failure, failures: int, *, retry: CallRetry, rng: random.Random
) -> float | None:
    if not failure.cls.is_transient or failures >= retry.attempts:
        return None
    pause_s = retry.delay_s(failures, rng=rng, retry_after_s=failure.retry_after_s)
    left_s = trio.current_effective_deadline() - trio.current_time()
    return pause_s if pause_s < left_s else None
