"""How long after `kill -9` of one of two pods, and of all pods, their jobs run again."""

import time
from pathlib import Path
from typing import Any

from cortex.bench.processes import pod
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import Submission
from cortex.postgres import scratch
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store import jobs

BOUND_S = 30.0
LOOK_S = 0.01


def takeover(dsn: str, log: Path, *, count: int, settle_s: float) -> dict[str, Any]:
    """Kill a pod that runs all jobs, then the one that took over; report the takeover times.

    After the second kill no pod is left: the time is measured from when a new one is ready.
    """
    with pod(dsn, log) as first:
        run(Profile(dsn=dsn), lambda db: _submit(db, count))
        _wait(dsn, lambda running: sum(running.values()) == count)
        with pod(dsn, log) as second:
            # Pods do not judge others soon after the server's start.
            run(Profile(dsn=dsn), lambda _: scratch.pause(settle_s + 1))
            killed_at = time.perf_counter()
            first.process.kill()
            back_s = run(
                Profile(dsn=dsn), lambda db: _watch(db, first.ready["pod"], count, killed_at)
            )
            second.process.kill()
        with pod(dsn, log):
            ready_at = time.perf_counter()
            fleet_s = run(
                Profile(dsn=dsn), lambda db: _watch(db, second.ready["pod"], count, ready_at)
            )
    back_s.sort()
    return {
        "jobs": count,
        "p50_s": round(back_s[len(back_s) // 2], 3),
        "p99_s": round(back_s[min(count - 1, int(0.99 * count))], 3),
        "max_s": round(back_s[-1], 3),
        "fleet_max_s": round(max(fleet_s), 3),
    }


async def _submit(db: Database, count: int) -> None:
    chance = system_chance()
    payload = '{"seconds": 120}'
    await jobs.submit(
        db,
        [Submission(id=chance.new_id(), type="bench_hold", payload=payload) for _ in range(count)],
    )


async def _watch(db: Database, lost_pod: str, count: int, killed_at: float) -> list[float]:
    """Return for each job the seconds from the kill until it ran elsewhere."""
    back_s: list[float] = []
    while len(back_s) < count:
        running = await scratch.running_elsewhere(db, lost_pod)
        elapsed_s = time.perf_counter() - killed_at
        back_s += [elapsed_s] * (running - len(back_s))
        if elapsed_s > BOUND_S:
            raise TimedOutError(f"{count - len(back_s)} jobs were not back after {BOUND_S:g} s")
        await scratch.pause(LOOK_S)
    return back_s


def _wait(dsn: str, is_there: Any) -> None:
    async def look(db: Database) -> None:
        began = time.perf_counter()
        while not is_there(await scratch.running_by_pod(db)):
            if time.perf_counter() - began > BOUND_S:
                raise TimedOutError(f"the jobs did not start within {BOUND_S:g} s")
            await scratch.pause(LOOK_S)

    run(Profile(dsn=dsn), look)
