"""Jobs and steps per second through the whole state machine, with history, in one pod.

The jobs are submitted first. The database measures from the first claim to the last completion:
PENDING, RUNNING and COMPLETED with a history row each, task inserted and deleted.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from cortex.bench import workload
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.bench.workers import measure_workers
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.domain.job import Submission
from cortex.postgres import scratch
from cortex.postgres.bridge import Port
from cortex.store import jobs

BACKLOG_PRIORITY = 100
LOOK_S = 0.02
LOOK_APART_S = 0.25
"""Between counts of completed jobs while the workers run: each costs the server milliseconds."""


def jobs_per_s(
    dsn: str, settings: Settings, log: Path, *, count: int, backlog: int
) -> dict[str, Any]:
    """Run no-op jobs; `backlog` others wait behind them throughout."""
    submitted_s = 0.0

    async def fill(port: Port) -> None:
        nonlocal submitted_s
        if backlog:
            # Of the same type and due: only their priority keeps them behind.
            await submit(port, "bench_noop", "{}", count=backlog, priority=BACKLOG_PRIORITY)
        began = time.perf_counter()
        await submit(port, "bench_noop", "{}", count=count)
        submitted_s = time.perf_counter() - began
        await port.cross(scratch.settle, dsn)

    done, cost = _until_done(dsn, settings, log, fill=fill, job_type="bench_noop", count=count)
    return {
        "jobs": count,
        "backlog": backlog,
        "workers": settings.workers,
        "jobs_per_s": round(done.count / done.elapsed_s),
        **cost.per("job", done.count),
        "submits_per_s": round(count / submitted_s),
    }


def steps_per_s(
    dsn: str, settings: Settings, log: Path, *, job_count: int, steps: int
) -> dict[str, Any]:
    """Run jobs of `steps` durable steps each."""

    async def fill(port: Port) -> None:
        await submit(port, "bench_steps", f'{{"count":{steps}}}', count=job_count)
        await port.cross(scratch.settle, dsn)

    done, cost = _until_done(dsn, settings, log, fill=fill, job_type="bench_steps", count=job_count)
    return {
        "jobs": job_count,
        "steps": steps,
        "workers": settings.workers,
        "steps_per_s": round(job_count * steps / done.elapsed_s),
        **cost.per("step", job_count * steps),
        "elapsed_s": round(done.elapsed_s, 3),
    }


def _until_done(
    dsn: str,
    settings: Settings,
    log: Path,
    *,
    fill: Callable[[Port], Awaitable[None]],
    job_type: str,
    count: int,
) -> "tuple[Done, Cost]":
    """Run jobs in a pod inside this process, or in one of several workers beside it."""
    if settings.workers > 1:
        wait = until_completed(job_type, count)
        return measure_workers(dsn, settings, log, fill=fill, work=wait)
    work = partial(metered, until_done(job_type, count))
    return measure(dsn, settings, fill=fill, work=work)


async def submit(
    port: Port, job_type: str, payload: str, *, count: int, priority: int | None = None
) -> None:
    """Submit `count` equal jobs in batches."""
    chance = system_chance()
    for start in range(0, count, jobs.SUBMIT_BATCH):
        batch = [
            Submission(id=chance.new_id(), type=job_type, payload=payload, priority=priority)
            for _ in range(min(jobs.SUBMIT_BATCH, count - start))
        ]
        await port(jobs.submit, batch)


@attrs.frozen
class Done:
    """Completed jobs, and the time from the first start to the last end among them."""

    count: int
    elapsed_s: float


def until_done(job_type: str, count: int) -> Callable[[Port], Awaitable[Done]]:
    """Return work that waits until `count` jobs of a type have completed.

    More may have completed by then: those of a backlog.
    """

    async def wait(port: Port) -> Done:
        while workload.started_count < count:  # noqa: ASYNC110 -- its cost is part of no job
            await trio.sleep(LOOK_S)
        return await until_completed(job_type, count, look_s=LOOK_S)(port)

    return wait


def until_completed(
    job_type: str, count: int, *, look_s: float = LOOK_APART_S
) -> Callable[[Port], Awaitable[Done]]:
    """Return the same work for a pod in other processes: it has only the database to ask."""

    async def wait(port: Port) -> Done:
        while True:
            completed, began, ended = await port(scratch.done, job_type)
            if completed >= count and began is not None and ended is not None:
                return Done(completed, (ended - began).total_seconds())
            await trio.sleep(look_s)

    return wait
