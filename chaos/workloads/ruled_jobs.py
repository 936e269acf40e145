"""Job types with rules about their submits: see `chaos.workloads.rules`. Runs inside pods."""

from typing import Final

import trio

from chaos.workloads.rules import PERIOD_S, Rule
from cortex import Context, Debounce, Retry, Singleton, Throttle, TransientError, job
from cortex.domain.backoff import Backoff
from cortex.domain.queueing.submit_rules import OnConflict

RETRY: Final = Retry(max=30, worker_attempts=40, backoff=Backoff(base_s=0.1, cap_s=1.0))
KEY: Final = "{customer}"
STEP_S: Final = 0.15
NAP_S: Final = 0.4


async def _work(ctx: Context, number: int) -> int:
    """Work a little; some sleep in between, others fail once: both wait, and have begun."""
    await ctx.step("begin", trio.sleep, STEP_S)
    if number % 4 == 1:
        await ctx.sleep("nap", NAP_S)
    if number % 4 == 2 and ctx.attempt == 1:
        raise TransientError("another attempt")
    await ctx.step("end", trio.sleep, STEP_S)
    return number


@job(Rule.RETURN.job_type, retry=RETRY, singleton=KEY)
async def ruled_return(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)


@job(Rule.REPLACE.job_type, retry=RETRY, singleton=Singleton(KEY, when=OnConflict.REPLACE))
async def ruled_replace(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)


@job(Rule.QUEUE.job_type, retry=RETRY, singleton=Singleton(KEY, when=OnConflict.QUEUE))
async def ruled_queue(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)


@job(Rule.REFUSE.job_type, retry=RETRY, singleton=Singleton(KEY, when=OnConflict.REFUSE))
async def ruled_refuse(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)


@job(Rule.DEBOUNCE.job_type, retry=RETRY, debounce=Debounce(PERIOD_S, key=KEY))
async def ruled_debounce(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)


@job(Rule.THROTTLE.job_type, retry=RETRY, throttle=Throttle(PERIOD_S, key=KEY))
async def ruled_throttle(ctx: Context, customer: int, number: int) -> int:  # noqa: ARG001
    return await _work(ctx, number)
