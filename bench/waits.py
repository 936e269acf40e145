"""The cost of jobs that wait for signals, and the time from a signal until its job runs."""

import gc
import time
from functools import partial
from typing import Any, Final
from uuid import UUID

import psutil
import trio

from cortex.bench.arrivals import Arrivals, quantiles
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import JobStatus, Submission
from cortex.postgres.bridge import Port
from cortex.store import jobs, signals

BATCH: Final = 1_000
LOOK_S: Final = 1.0
BOUND_S: Final = 600.0
WARM_UP: Final = 5_000
SIGNALS: Final = 200
PAUSE_S: Final = 0.1
"""Between two signals, so that each finds an idle pod."""
SETTLE_S: Final = 5.0
"""Until what the pod did before is over."""


def waits(dsn: str, settings: Settings, *, count: int, seconds: float) -> dict[str, Any]:
    """Let jobs wait, with an idle pod; report what it costs then, and how soon they run."""
    return measure(dsn, settings, work=lambda port: _wait(port, count, seconds))


async def _wait(port: Port, count: int, seconds: float) -> dict[str, Any]:
    arrivals, process = Arrivals(), psutil.Process()
    await _until_waiting(port, await _submit(port, WARM_UP))  # as many at once as ever
    await trio.sleep(SETTLE_S)
    rss_before, idle = await _idle(port, process, seconds)
    began = time.perf_counter()
    ids = await _submit(port, count)
    await _until_waiting(port, ids)
    took_s = time.perf_counter() - began
    await trio.sleep(SETTLE_S)
    rss_after, waiting = await _idle(port, process, seconds)
    waits_ms = [await _signal(port, arrivals, each) for each in ids[:: max(1, count // SIGNALS)]]
    return {
        "jobs": count,
        "begun_per_s": round(count / took_s),
        "pod_cores_without": round(idle.pod_s / seconds, 4),
        "pod_cores_waiting": round(waiting.pod_s / seconds, 4),
        "postgres_cores_without": _share(idle, seconds),
        "postgres_cores_waiting": _share(waiting, seconds),
        "rss_mb_more": round((rss_after - rss_before) / 2**20, 1),
        **quantiles(waits_ms),
    }


async def _submit(port: Port, count: int) -> list[UUID]:
    new_id = system_chance().new_id
    ids = [new_id() for _ in range(count)]
    for begin in range(0, count, BATCH):
        batch = [Submission(id=each, type="bench_wait") for each in ids[begin : begin + BATCH]]
        await port(jobs.submit, batch)
    return ids


async def _until_waiting(port: Port, ids: list[UUID]) -> None:
    with trio.move_on_after(BOUND_S):
        while True:
            counts = await port(jobs.counts, ids)
            if counts.get(JobStatus.WAITING_FOR_APPROVAL, 0) == len(ids):
                return
            await trio.sleep(LOOK_S)
    raise TimedOutError(f"not all jobs waited within {BOUND_S:g} s: {counts}")


async def _idle(port: Port, process: psutil.Process, seconds: float) -> tuple[int, Cost]:
    gc.collect()
    _, cost = await metered(partial(_sleep, seconds=seconds), port)
    return process.memory_info().rss, cost


async def _sleep(_: Port, seconds: float) -> None:
    await trio.sleep(seconds)


async def _signal(port: Port, arrivals: Arrivals, job_id: UUID) -> float:
    await trio.sleep(PAUSE_S)
    sent = time.perf_counter()
    await port(signals.send, "go", "null", job=job_id)
    went_on = await arrivals.of(job_id, within_s=BOUND_S, what="continue")
    return 1000 * (went_on - sent)


def _share(cost: Cost, seconds: float) -> float | None:
    return None if cost.postgres_s is None else round(cost.postgres_s / seconds, 4)
