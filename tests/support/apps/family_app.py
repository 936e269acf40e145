"""Jobs that submit others, for pods of tests: each run of a leaf leaves a line in a file."""

import os
from pathlib import Path

import trio

from cortex import ChildFailedError, Context, job


def _note(line: str) -> None:
    with Path(os.environ["CORTEX_TEST_NOTES"]).open("a") as file:
        file.write(f"{line}\n")


@job
async def double(ctx: Context, number: int, pause_s: float = 0.0) -> int:
    await trio.sleep(pause_s)
    await ctx.step("note", _note, f"{number}")
    return 2 * number


@job
async def fail(ctx: Context, number: int) -> int:
    raise ValueError(f"number {number} is odd")


fail_at_once = job("fail_at_once", final=(ValueError,))(fail.handler)


@job
async def add(ctx: Context, numbers: list[int], concurrency: int = 3) -> int:
    """Use each way to submit children."""
    first = await ctx.spawn(double, name="first", number=100)
    total = sum([n async for n in ctx.map(double, numbers, concurrency=concurrency)])
    total += await ctx.call(double, name="last", number=1000)
    await ctx.submit(double, name="aside", number=5)
    return total + await first.result()


@job
async def catch(ctx: Context, number: int) -> dict[str, str]:
    try:
        await ctx.call(fail_at_once, number=number)
    except ChildFailedError as error:
        return {"child": str(error.job_id), "code": str(error.error_code), "text": error.message}
    raise AssertionError("it did not fail")


@job(final=(ValueError,))
async def odd_ones(ctx: Context, number: int) -> int:
    """Fail for an even number, until there is a file that says that all is well."""
    await ctx.step("note", _note, f"{number}")
    if number % 2 == 0 and not Path(os.environ["CORTEX_TEST_NOTES"]).with_suffix(".well").exists():
        raise ValueError(f"number {number} is even")
    return number


@job
async def gather(ctx: Context, numbers: list[int]) -> int:
    return sum([n async for n in ctx.map(odd_ones, numbers, concurrency=2)])


@job
async def hang(ctx: Context, depth: int, width: int = 2) -> None:
    """Submit a tree of jobs whose leaves wait for a day."""
    if depth == 0:
        await ctx.sleep("a day", days=1)
        return
    await ctx.spawn(hang, name="aside", detached=True, depth=0)
    async for _ in ctx.map(hang, [depth - 1] * width, concurrency=width):
        pass


@job
async def dig(ctx: Context) -> None:
    """Submit itself without end."""
    await ctx.call(dig)


@job
async def total(ctx: Context, numbers: list[int], pause_s: float) -> int:
    found = ctx.map(double, numbers, concurrency=5, pause_s=pause_s)
    return sum([n async for n in found])


isolated_add = job("isolated_add", isolated=True)(add.handler)
