"""The application of pods whose traces are tested: a job that does one of everything."""

from typing import Any

import structlog
import trio

from cortex.domain.effect import Invocation
from cortex.durable.context import Context
from cortex.durable.registry import job


@job("traced")
async def traced(ctx: Context, gate: str, url: str, model: str, prompt: str) -> Any:
    """Do one of everything; the first attempt waits for the gate after its first step."""
    await ctx.step("begun", _nothing)
    while not await trio.Path(gate).exists():  # noqa: ASYNC110 -- the test is another process
        await trio.sleep(0.05)
    await ctx.llm("ask", model=model, messages=[{"role": "user", "content": prompt}])
    await ctx.tool("look", "http_request", {"url": url})
    await ctx.approve("release", detail={"version": 2})
    await ctx.publish("order.paid", {"order": 1})
    return await ctx.effect("pay", pay, 7)


async def pay(invocation: Invocation, amount: int) -> int:
    return amount + invocation.attempt


async def _nothing() -> None:
    structlog.get_logger().info("in a step")
