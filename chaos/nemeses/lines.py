"""Which lines to Postgres a network fault breaks: one pod's, all pods' or the clients'.

A line has one such fault at a time: healing one would heal the other.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from chaos.cluster.proxy import ProxyLine
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import to_its_end, until
from chaos.nemeses.target import draw_place
from chaos.windows import Window

TARGETS: Final = {"one": 6, "all": 2, "clients": 2}
"""How often each is drawn."""
WATCH_EVERY_S: Final = 0.002
WRITES_WITHIN_S: Final = 1.0
WRITES_SHARE: Final = 0.7
"""Share of the faults that wait for a write to hit."""
BUSY: Final[dict[str, Any]] = {"missed": "other faults had broken the network", "windows": []}


def draw_target(dice: random.Random) -> dict[str, Any]:
    """Draw the target, and whether to wait for one of its writes."""
    whom = dice.choices(list(TARGETS), list(TARGETS.values()))[0]
    return {"whom": whom, "place": draw_place(dice), "writes": dice.random() < WRITES_SHARE}


def free_lines(stage: Stage, detail: dict[str, Any]) -> list[ProxyLine]:
    """The drawn lines, without those that are broken already; for one pod, the next free one."""
    lines = [place.line for place in stage.pods_kept.places]
    match detail["whom"]:
        case "all":
            chosen = [*lines, stage.client_line]
        case "clients":
            chosen = [stage.client_line]
        case _:
            turned = detail["place"] % len(lines)
            chosen = [line for line in lines[turned:] + lines[:turned] if not line.is_taken][:1]
    return [line for line in chosen if not line.is_taken]


@asynccontextmanager
async def taken(lines: Sequence[ProxyLine]) -> AsyncIterator[None]:
    """Keep other faults away from lines until the block is left; then they are whole again."""
    for line in lines:
        line.is_taken = True
    try:
        yield
    finally:
        await to_its_end(_heal(lines))


async def _heal(lines: Sequence[ProxyLine]) -> None:
    for line in lines:
        await line.heal()
        line.is_taken = False


async def some_write(lines: Sequence[ProxyLine]) -> None:
    """Wait a little until a write is in flight on one of the lines."""
    await until(
        lambda: any(line.is_writing for line in lines), within_s=WRITES_WITHIN_S, every_s=0.001
    )


async def hits_commit(
    lines: Sequence[ProxyLine],
    *,
    for_s: float,
    is_caught: Callable[[], bool] | None = None,
) -> list[Window]:
    """Let this much time pass; return the windows if commits were caught in it.

    By default a commit was caught if a write was in flight at the start, or a connection ended in
    one.
    """
    torn = torn_count(lines)
    is_hit = any(line.is_writing for line in lines)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + for_s
    while (left_s := ends_at - loop.time()) > 0:
        is_hit = is_hit or (is_caught is not None and is_caught())
        await asyncio.sleep(min(left_s, WATCH_EVERY_S if is_caught and not is_hit else left_s))
    return [Window.COMMIT] if is_hit or torn_count(lines) > torn else []


def torn_count(lines: Sequence[ProxyLine]) -> int:
    """How many writes lost their connection before the reply arrived."""
    return sum(line.torn_count for line in lines)


def hit(lines: Sequence[ProxyLine], windows: Sequence[Window]) -> dict[str, Any]:
    """Which lines were broken, and which windows that hit."""
    return {"pods": [line.name for line in lines], "windows": list(windows)}
