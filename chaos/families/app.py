"""The application of the storm: families whose shape follows from their paths.

A path that ends in `!` fails. One that ends in `?` waits for a day, with all below it: somebody
cancels it.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import trio

from cortex import ChildFailedError, Context, Retry, job
from cortex.domain.backoff import Backoff

AT_ONCE: Final = 3
WIDTH: Final = (3, 8)
MARKED_SHARE: Final = 0.15
WORK_S: Final = (0.0, 0.03)
FAILS: Final = "!"
ENDLESS: Final = "?"
QUICK: Final = Retry(max=50, worker_attempts=100, backoff=Backoff(base_s=0.05, cap_s=0.2))


def below(path: str) -> list[str]:
    """Return the paths of a map's children."""
    dice = random.Random(path)
    mark = ENDLESS if path.count(".") == 0 else FAILS

    def marked() -> Iterator[str]:
        for number in range(dice.randint(*WIDTH)):
            is_marked = dice.random() < MARKED_SHARE
            yield f"{path.rstrip(ENDLESS)}.{number}{mark if is_marked else ''}"

    if path.endswith(ENDLESS):
        return [f"{each.rstrip(FAILS + ENDLESS)}{ENDLESS}" for each in marked()]
    return [*marked()]


def spawned(path: str) -> str:
    """Return the path of the child that a family spawns, beside its map."""
    return f"{path.rstrip(ENDLESS)}.one{ENDLESS if path.endswith(ENDLESS) else ''}"


def submitted(path: str) -> str:
    """Return the path of the job that a family submits and does not wait for."""
    return f"{path.rstrip(ENDLESS)}.aside"


def outcome(path: str) -> Any:
    """Return what the parent of a path gets from it."""
    if path.endswith(ENDLESS):
        return "CANCELLED"
    if path.endswith(FAILS):
        return "FAILED"
    return result(path)


def result(path: str) -> Any:
    """Return what a job returns that completes."""
    level = path.count(".")
    if level == 0:
        return [*map(outcome, below(path)), outcome(spawned(path))]
    if level == 1 and path.rpartition(".")[2].isdigit():
        return [*map(outcome, below(path))]
    return path


@job("kin_leaf", retry=QUICK, final=(ValueError,))
async def leaf(ctx: Context, path: str) -> str:
    """Work a little."""
    if path.endswith(ENDLESS):
        await ctx.sleep("until somebody cancels it", days=1)
    await trio.sleep(random.Random(path).uniform(*WORK_S))
    if path.endswith(FAILS):
        raise ValueError(f"{path} fails")
    return path


@job("kin_branch", retry=QUICK, timeout=86_400)
async def branch(ctx: Context, path: str) -> list[Any]:
    """Take the results of leaves."""
    return await _taken(ctx.map(leaf, below(path), concurrency=AT_ONCE))


@job("kin_family", retry=QUICK, timeout=86_400)
async def family(ctx: Context, path: str) -> list[Any]:
    """Take the results of branches, and of a leaf that was spawned before them."""
    await ctx.submit(leaf, name="aside", path=submitted(path))
    one = await ctx.spawn(leaf, name="one", path=spawned(path))
    found = await _taken(ctx.map(branch, below(path), concurrency=AT_ONCE))
    return [*found, await one.result()]


async def _taken(children: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(await anext(children))
        except StopAsyncIteration:
            return found
        except ChildFailedError as error:
            found.append(str(error.status))
