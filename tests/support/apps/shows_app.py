"""Jobs that show state, progress and chunks while a test holds them at a gate."""

from pathlib import Path
from typing import Any

import trio

from cortex import Context, job


async def _open(gate: str) -> None:
    while not await trio.Path(gate).exists():  # noqa: ASYNC110 -- nothing notifies of a file
        await trio.sleep(0.05)


async def linger(seconds: float) -> None:
    """Do nothing for a while, by the clock of the test."""
    await trio.sleep(seconds)


@job("shows")
async def shows(ctx: Context, gate: str) -> dict[str, Any]:
    """Show what it does, wait at the gate inside a step, and go on."""
    ctx.state["phase"] = "begun"
    made = str(ctx.uuid())
    began = await ctx.now()
    for number in range(3):
        await ctx.emit({"part": number, "made": made})
    ctx.state["phase"] = "held"

    async def held() -> str:
        ctx.state["inside"] = [1, 2]
        ctx.progress(1, 3, "pages")
        await _open(gate)
        return Path(gate).name

    await ctx.step("held", held)
    ctx.state["phase"] = "over"
    ctx.progress(3, 3, "pages")
    await ctx.emit("last")
    return {"made": made, "began": began.isoformat()}


@job("shows-apart", isolated=True)
async def shows_apart(ctx: Context, gate: str) -> dict[str, Any]:
    """The same in a process of its own."""
    shown: dict[str, Any] = await shows.handler(ctx, gate=gate)
    return shown


@job("buys")
async def buys(ctx: Context, timer_s: float = 86_400.0) -> list[Any]:
    """Buy once anybody agrees, or a signal comes, or time is over; then take what is left."""
    winner = await ctx.first(
        ctx.sleep("too late", timer_s), ctx.approve("buy"), ctx.receive("go", key=str(ctx.job_id))
    )
    left = await ctx.receive("go", timeout=0.0, default=None, key=str(ctx.job_id))
    return [winner.name, winner.value if winner.name == "go" else None, left]


@job("hopes")
async def hopes(ctx: Context) -> list[Any]:
    """Wait for two signals, one of them for a time; then for the other in another race."""
    winner = await ctx.first(ctx.receive("one", timeout=86_400), ctx.receive("two"))
    again = await ctx.first(ctx.receive("one", timeout=86_400), ctx.sleep("late", 86_400))
    return [winner.name, again.name]


@job("buys-apart", isolated=True)
async def buys_apart(ctx: Context, timer_s: float = 86_400.0) -> list[Any]:
    """The same in a process of its own."""
    bought: list[Any] = await buys.handler(ctx, timer_s=timer_s)
    return bought


@job("rests")
async def rests(ctx: Context, seconds: float) -> float:
    """Sleep for long, as a child."""
    await ctx.sleep("rest", seconds)
    return seconds


@job("races")
async def races(ctx: Context) -> list[Any]:
    """Wait for a child that is too slow, and for a detached one; then for the quick one."""
    slow = await ctx.spawn(rests, seconds=86_400.0)
    apart = await ctx.spawn(rests, seconds=86_400.0, detached=True, name="apart")
    late = await ctx.first(slow.result(), apart.result(), ctx.sleep("late", 0.5))
    quick = await ctx.first(
        ctx.call(rests, seconds=0.0, name="quick"), ctx.sleep("never", 86_400.0)
    )
    return [late.name, quick.name, quick.value]
