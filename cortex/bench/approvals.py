"""Time from a person's decision until the job runs again, and the cost of waiting."""

import time
from functools import partial
from typing import Any, Final
from uuid import UUID

import trio

from cortex.bench import workload
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.config import Settings
from cortex.domain.approval_vote import Vote
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import Submission
from cortex.postgres.bridge import Port
from cortex.store import approvals, jobs

WARM_UP: Final = 20
LOOK_S: Final = 0.01
BOUND_S: Final = 10.0
IDLE_S: Final = 0.02
"""Pause between two decisions, so that each finds an idle pod."""


def decisions(dsn: str, settings: Settings, *, count: int) -> dict[str, Any]:
    """Decide requests one by one; report quantiles of decision-to-running in milliseconds."""
    waits_ms, cost = measure(
        dsn, settings, fill=_nothing, work=lambda port: _decide_each(port, count)
    )
    waits_ms.sort()
    return {
        "decisions": count,
        "p50_ms": round(_quantile(waits_ms, 0.50), 3),
        "p90_ms": round(_quantile(waits_ms, 0.90), 3),
        "p99_ms": round(_quantile(waits_ms, 0.99), 3),
        "max_ms": round(waits_ms[-1], 3),
        **cost.per("decision", count),
    }


async def _decide_each(port: Port, count: int) -> tuple[list[float], Cost]:
    chance = system_chance()
    went_on: dict[UUID, float] = {}
    arrived = trio.Event()

    def note(job_id: UUID) -> None:
        went_on[job_id] = time.perf_counter()
        arrived.set()

    workload.on_start = note

    async def decide(port: Port, how_many: int) -> list[float]:
        nonlocal arrived
        waits_ms = []
        for _ in range(how_many):
            arrived = trio.Event()
            job = Submission(id=chance.new_id(), type="bench_gate")
            await port(jobs.submit, [job])
            vote = await _asked(port, job.id)
            await trio.sleep(IDLE_S)
            sent = time.perf_counter()
            await port(approvals.decide, [vote])
            with trio.move_on_after(BOUND_S):
                await arrived.wait()
            if job.id not in went_on:
                raise TimedOutError(f"job {job.id} did not continue within {BOUND_S:g} s")
            waits_ms.append(1000 * (went_on[job.id] - sent))
        return waits_ms

    await decide(port, WARM_UP)
    return await metered(partial(decide, how_many=count), port)


async def _asked(port: Port, job_id: UUID) -> Vote:
    """Wait until the job requests approval; return an approving vote."""
    with trio.move_on_after(BOUND_S):
        while True:
            for request in await port(approvals.of_job, job_id):
                return Vote(
                    approval_id=request.id,
                    is_approved=True,
                    by="bench",
                    credential="os:0@bench",
                    seen=request.digest,
                    channel="cli",
                )
            await trio.sleep(LOOK_S)
    raise TimedOutError(f"job {job_id} did not request approval within {BOUND_S:g} s")


async def _nothing(_: Port) -> None:
    """Do nothing: an empty database is enough."""


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
