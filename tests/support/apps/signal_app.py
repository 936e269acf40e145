"""Jobs that wait for signals."""

from typing import Any

from cortex.durable.context import Context
from cortex.durable.registry import job


@job
async def collects(ctx: Context, count: int) -> list[Any]:
    """Receive so many signals, one after the other."""
    return [await ctx.receive("item") for _ in range(count)]


@job(isolated=True)
async def collects_apart(ctx: Context, count: int) -> list[Any]:
    """Do the same in a process of its own."""
    return [await ctx.receive("item", timeout=3_600) for _ in range(count)]


@job
async def expects(ctx: Context, key: str, timeout: float) -> Any:
    """Receive one signal to a key, or nothing in time."""
    found = await ctx.receive("paid", key=key, timeout=timeout, default="nothing")
    return [found, await ctx.step("after", str, found)]
