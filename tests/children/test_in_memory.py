"""Children in `cortex.testing`."""

from cortex import ChildFailedError, Context, job
from cortex.testing import Cortex


@job
async def double(ctx: Context, number: int) -> int:
    return await ctx.step("double", lambda n: 2 * n, number)


@job(final=(ValueError,))
async def fail(ctx: Context, number: int) -> int:
    raise ValueError(f"{number} is odd")


@job
async def add(ctx: Context, numbers: list[int]) -> int:
    first = await ctx.spawn(double, name="first", number=100)
    total = sum([n async for n in ctx.map(double, numbers, concurrency=2)])
    total += await ctx.call(double, name="last", number=1000)
    return total + await first.result()


@job
async def catch(ctx: Context, number: int) -> str:
    try:
        await ctx.call(fail, number=number)
    except ChildFailedError as error:
        return f"{error.error_code}: {error.error}"
    return "?"


def test_children_run_in_memory(cortex: Cortex) -> None:
    run = cortex.run_sync(add, numbers=[1, 2, 3])
    assert run.result == 2 * (100 + 6 + 1000)
    assert run.steps == [
        "first",
        "double",
        "double result",
        "double result#2",
        "last",
        "last result",
        "first result",
    ]
    run.replays()
    assert cortex.crash_everywhere_sync(add, numbers=[1, 2]) > 10


def test_failed_child_raises_its_error_in_memory(cortex: Cortex) -> None:
    run = cortex.run_sync(catch, number=3)
    assert run.result == "final: ValueError: 3 is odd"
    run.replays()


@job
async def dig(ctx: Context, depth: int) -> int:
    return await ctx.call(dig, depth=depth + 1)


def test_job_that_submits_itself_without_end_fails_in_memory(cortex: Cortex) -> None:
    error = cortex.run_sync(dig, depth=0).error
    assert isinstance(error, ChildFailedError)
    assert "has 20 jobs above it, as many as there may be" in error.message
    assert "\n" not in error.message
