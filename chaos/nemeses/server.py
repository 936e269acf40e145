"""What all faults of the server share: one at a time, and the server always comes back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from chaos.cluster.proxy import ProxyLine
from chaos.cluster.relay import Relay
from chaos.cluster.stage import Stage
from chaos.nemeses.healing import AGAIN_S, sql_when_up, to_its_end
from chaos.nemeses.lines import torn_count
from chaos.windows import Window
from cortex.domain.errors import UnavailableError

SWITCH_WITHIN_S: Final = 30.0
DOWN: Final[dict[str, Any]] = {"missed": "the server was down", "windows": []}


async def break_server(
    stage: Stage, how: Callable[[], Awaitable[None]], *, down_s: float = 0.0
) -> dict[str, Any]:
    """Break the server, leave it so for a while, restore it; return what that hit.

    One fault of the server at a time: the next one waits for its turn.
    """
    async with asyncio.timeout(SWITCH_WITHIN_S) as bound, stage.postgres.switch:
        bound.reschedule(None)
        lines = lines_of(stage)
        before = torn_count(lines)
        is_writing = any(line.is_writing for line in lines)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await how()
            await asyncio.sleep(down_s)
        finally:
            await to_its_end(back(stage))
        is_hit = is_writing or torn_count(lines) > before
        windows = [Window.COMMIT] if is_hit else []
        return {
            "away_s": round(loop.time() - began, 3),
            "torn": torn_count(lines) - before,
            "windows": windows,
        }


async def back(stage: Stage) -> None:
    """Start the server, repeatedly if needed: it does not recover while its disk is full."""
    while True:
        try:
            await stage.postgres.start()
            break
        except UnavailableError:
            await asyncio.sleep(AGAIN_S)
    await sql_when_up(stage, "SELECT 1")


def lines_of(stage: Stage) -> list[ProxyLine]:
    """All lines to the server."""
    return [*stage.pod_lines, stage.client_line]


def sessions_of_pods(stage: Stage) -> list[Relay]:
    """The sessions of pods, oldest first."""
    return sessions_in(relay for line in stage.pod_lines for relay in line.relays)


def sessions_in(relays: Iterable[Relay]) -> list[Relay]:
    """The relays that have a process at the server, oldest first."""
    pids = [(relay.statements.backend_pid or 0, relay) for relay in relays]
    return [relay for pid, relay in sorted(pids, key=lambda each: each[0]) if pid]
