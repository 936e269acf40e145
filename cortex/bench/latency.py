"""Time from submit to the start of the handler, on an idle pod."""

import time
from functools import partial
from typing import Any
from uuid import UUID

import trio

from cortex.bench import workload
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import Submission
from cortex.postgres.bridge import Port
from cortex.store import jobs

WARM_UP = 50
IDLE_S = 0.01
"""Pause between two jobs, so that each finds an idle pod."""
BOUND_S = 5.0


def latency(dsn: str, settings: Settings, *, count: int) -> dict[str, Any]:
    """Submit jobs one by one; report quantiles of submit-to-start in milliseconds."""
    waits_ms, cost = measure(
        dsn, settings, fill=_nothing, work=lambda port: _submit_each(port, count)
    )
    waits_ms.sort()
    return {
        "jobs": count,
        "p50_ms": round(_quantile(waits_ms, 0.50), 3),
        "p90_ms": round(_quantile(waits_ms, 0.90), 3),
        "p99_ms": round(_quantile(waits_ms, 0.99), 3),
        "max_ms": round(waits_ms[-1], 3),
        **cost.per("job", count),
    }


async def _submit_each(port: Port, count: int) -> tuple[list[float], Cost]:
    chance = system_chance()
    started: dict[UUID, float] = {}
    arrived = trio.Event()

    def note(job_id: UUID) -> None:
        started[job_id] = time.perf_counter()
        arrived.set()

    workload.on_start = note
    await trio.sleep(1.5)  # the pod has finished its imports and first polls

    async def submit(port: Port, how_many: int) -> list[float]:
        nonlocal arrived
        waits_ms = []
        for _ in range(how_many):
            arrived = trio.Event()
            job = Submission(id=chance.new_id(), type="bench_stamp")
            sent = time.perf_counter()
            await port(jobs.submit, [job])
            with trio.move_on_after(BOUND_S):
                await arrived.wait()
            if job.id not in started:
                raise TimedOutError(f"job {job.id} did not start within {BOUND_S:g} s")
            waits_ms.append(1000 * (started[job.id] - sent))
            await trio.sleep(IDLE_S)
        return waits_ms

    await submit(port, WARM_UP)
    return await metered(partial(submit, how_many=count), port)


async def _nothing(_: Port) -> None:
    """Do nothing: an empty database is enough."""


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
