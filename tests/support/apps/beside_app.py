"""Jobs that wait for what comes beside a step that runs, and that do not look by themselves."""

from typing import Any

import trio

from cortex import Context, job
from cortex.durable import first_of

first_of.LOOK_S = 3_600.0  # type: ignore[misc]


@job("works")
async def works(ctx: Context) -> list[Any]:
    """Work until a signal comes."""

    async def work() -> None:
        ctx.state["phase"] = "works"
        await trio.sleep_forever()

    winner = await ctx.first(ctx.step("work", work), ctx.sleep("late", days=1), ctx.receive("go"))
    return [winner.name, winner.value]


@job("works-apart", isolated=True)
async def works_apart(ctx: Context) -> list[Any]:
    """The same in a process of its own."""
    worked: list[Any] = await works.handler(ctx)
    return worked


@job("leads")
async def leads(ctx: Context) -> list[Any]:
    """Work until a child has ended, which waits for a signal."""

    async def work() -> None:
        ctx.state["phase"] = "works"
        await trio.sleep_forever()

    child = await ctx.spawn(follows)
    winner = await ctx.first(ctx.step("work", work), child.result())
    return [winner.name, winner.value]


@job("follows")
async def follows(ctx: Context) -> Any:
    """Wait for a signal to a key, as a child."""
    return await ctx.receive("end", key="follower")
