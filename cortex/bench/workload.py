"""Job types of the measurements, loaded into pods of other processes by `--app`."""

import logging
from collections.abc import Callable
from uuid import UUID

import trio

from cortex.domain.backoff import Backoff
from cortex.domain.errors import TransientError
from cortex.durable.context import Context
from cortex.durable.registry import Retry, job

_log = logging.getLogger("bench")

started_count = 0
"""Handlers that began in this process: cheaper to read than the database."""

on_start: Callable[[UUID], None] | None = None
"""Called when `bench_stamp` starts, and when `bench_gate` or `bench_wait` go on; set by a
measurement in this process."""


@job("bench_noop")
async def noop(ctx: Context) -> None:  # noqa: ARG001
    """Do nothing: only the state machine's cost remains."""
    _count()


@job("bench_stamp")
async def stamp(ctx: Context) -> None:
    """Call `on_start` when the handler starts."""
    if on_start is not None:
        on_start(ctx.job_id)


@job("bench_gate")
async def gate(ctx: Context) -> None:
    """Request approval, then call `on_start`."""
    await ctx.approve("go", detail={"job": str(ctx.job_id)})
    if on_start is not None:
        on_start(ctx.job_id)


@job("bench_wait")
async def wait(ctx: Context) -> None:
    """Receive a signal, then call `on_start`."""
    await ctx.receive("go")
    if on_start is not None:
        on_start(ctx.job_id)


@job("bench_steps")
async def steps(ctx: Context, count: int) -> int:
    """Commit `count` steps, one after another."""
    _count()
    total = 0
    for number in range(count):
        total += await ctx.step("add", _add, number)
    return total


@job("bench_calls")
async def calls(ctx: Context, count: int) -> None:
    """Call the model `count` times, one after another."""
    _count()
    for number in range(count):
        question = [{"role": "user", "content": f"{number}?"}]
        await ctx.llm("ask", model="scripted", messages=question)


@job("bench_retry", retry=Retry(backoff=Backoff(base_s=0.01, cap_s=0.01)))
async def retried(ctx: Context) -> None:
    """Fail once with a retryable error."""
    if ctx.attempt == 1:
        _count()
        raise TransientError("once")


@job("bench_log", timeout=600)
async def log(ctx: Context, per_s: int, seconds: float) -> None:  # noqa: ARG001
    """Log `per_s` lines a second for `seconds`, in steps of ten milliseconds."""
    began, total = trio.current_time(), int(per_s * seconds)
    for number in range(total):
        _log.info("order %d: one line of an ordinary job, as long as most are", number)
        due = began + (number + 1) / per_s
        if number % max(1, per_s // 100) == 0:
            await trio.sleep_until(due)


@job("bench_hold", timeout=600)
async def hold(ctx: Context, seconds: float) -> None:  # noqa: ARG001
    """Run until the time is over."""
    await trio.sleep(seconds)


def _count() -> None:
    global started_count  # noqa: PLW0603 -- one process, one measurement
    started_count += 1


async def _add(number: int) -> int:
    return number


@job("bench_stream", timeout=600)
async def stream(ctx: Context, prompt: str) -> str:
    """Stream one response of the model."""
    response = await ctx.llm(
        "answer",
        model="scripted",
        messages=[{"role": "user", "content": prompt}],
        max_tokens=4096,
    )
    return response.text[:20]
