"""The wait of a small tenant's jobs beside one with a great many, of a type with a limit."""

import statistics
import time
from typing import Any, Final
from uuid import UUID

import trio

from cortex.bench.in_process import measure
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.job import JobStatus, Submission
from cortex.domain.job_limits import Concurrency
from cortex.postgres import scratch
from cortex.postgres.bridge import Port
from cortex.store import jobs, limits

TYPE: Final = "bench_hold"
AT_ONCE: Final = 5
WORK_S: Final = 0.02
BATCH: Final = 10_000
PASSES: Final = 20
RATIO_MAX: Final = 2.0
PASS_MS_MAX: Final = 20.0
POLL_S: Final = 0.1


def limits_beside(dsn: str, settings: Settings, *, backlog: int, count: int) -> dict[str, Any]:
    """Run a tenant's jobs alone, and then beside another one's; return the median waits."""

    async def work(port: Port) -> dict[str, Any]:
        # The pod's own declaration has none for this type.
        await port(limits.declare, {TYPE: [Concurrency(AT_ONCE, key="tenant")]})
        alone_s = await _median_wait_s(port, "small", count)
        for start in range(0, backlog, BATCH):
            await _submit(port, "large", min(BATCH, backlog - start))
        beside_s = await _median_wait_s(port, "small", count)
        pass_ms = 1000 * statistics.median([await _pass_s(port) for _ in range(PASSES)])
        return {
            "backlog": backlog,
            "alone_ms": round(1000 * alone_s, 1),
            "beside_ms": round(1000 * beside_s, 1),
            "ratio": round(beside_s / alone_s, 2),
            "pass_ms": round(pass_ms, 2),
            "is_met": beside_s <= RATIO_MAX * alone_s and pass_ms <= PASS_MS_MAX,
        }

    return measure(dsn, settings, work=work)


async def _submit(port: Port, tenant: str, count: int) -> list[UUID]:
    chance = system_chance()
    batch = [
        Submission(id=chance.new_id(), type=TYPE, tenant=tenant, payload=f'{{"seconds":{WORK_S}}}')
        for _ in range(count)
    ]
    await port(jobs.submit, batch)
    return [each.id for each in batch]


async def _median_wait_s(port: Port, tenant: str, count: int) -> float:
    ids = await _submit(port, tenant, count)
    while await port(jobs.counts, ids) != {JobStatus.COMPLETED: count}:  # noqa: ASYNC110 -- a database
        await trio.sleep(POLL_S)
    took_s: list[float] = await port(scratch.job_durations, ids)
    return statistics.median(took_s) - WORK_S


async def _pass_s(port: Port) -> float:
    began = time.perf_counter()
    await port(limits.admit)
    return time.perf_counter() - began
