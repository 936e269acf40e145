"""Measures a pod of several workers: `cortex up --workers`, beside the measuring process.

The jobs wait in a paused queue until all workers are ready.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import psutil
import trio

from cortex.bench.meter import Cost, metered
from cortex.bench.processes import pod
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.queueing.pauses import Pausable
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.store import pauses

T = TypeVar("T")

BY: Final = "cortex bench"
QUEUE: Final = Pausable.parse("queue:default")


def measure_workers(
    dsn: str,
    settings: Settings,
    log: Path,
    *,
    fill: Callable[[Port], Awaitable[None]],
    work: Callable[[Port], Awaitable[T]],
) -> tuple[T, Cost]:
    """Fill the database, start a pod on it, and return the result of `work` and its cost."""

    async def released(port: Port) -> T:
        await port(pauses.resume, QUEUE, by=BY)
        return await work(port)

    async def run() -> tuple[T, Cost]:
        async with open_port(Profile(dsn=dsn), rng=system_chance().rng) as port:
            await fill(port)
            await port(pauses.pause, QUEUE, by=BY, reason="until the workers are ready")
            shares = ("--workers", str(settings.workers), "--slots", str(settings.slots))
            with pod(dsn, log, *shares) as started:
                workers = psutil.Process(started.process.pid).children()
                return await metered(released, port, pod_cpu_s=partial(_cpu_s, workers))

    return trio.run(run)


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [each.cpu_times() for each in processes]
    return sum(each.user + each.system for each in times)
