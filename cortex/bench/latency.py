"""Time from submit to the start of the handler, on an idle pod."""

import time
from functools import partial
from typing import Any

import trio

from cortex.bench.arrivals import Arrivals, quantiles
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.job import Submission
from cortex.postgres.bridge import Port
from cortex.store import jobs

WARM_UP = 50
IDLE_S = 0.01
"""Pause between two jobs, so that each finds an idle pod."""
BOUND_S = 5.0


def latency(dsn: str, settings: Settings, *, count: int) -> dict[str, Any]:
    """Submit jobs one by one; report quantiles of submit-to-start in milliseconds."""
    waits_ms, cost = measure(dsn, settings, work=lambda port: _submit_each(port, count))
    return {"jobs": count, **quantiles(waits_ms), **cost.per("job", count)}


async def _submit_each(port: Port, count: int) -> tuple[list[float], Cost]:
    chance = system_chance()
    arrivals = Arrivals()
    await trio.sleep(1.5)  # the pod has finished its imports and first polls

    async def submit(port: Port, how_many: int) -> list[float]:
        waits_ms = []
        for _ in range(how_many):
            job = Submission(id=chance.new_id(), type="bench_stamp")
            sent = time.perf_counter()
            await port(jobs.submit, [job])
            started = await arrivals.of(job.id, within_s=BOUND_S, what="start")
            waits_ms.append(1000 * (started - sent))
            await trio.sleep(IDLE_S)
        return waits_ms

    await submit(port, WARM_UP)
    return await metered(partial(submit, how_many=count), port)
