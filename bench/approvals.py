"""Time from a person's decision until the job runs again, and the cost of waiting."""

import time
from functools import partial
from typing import Any, Final
from uuid import UUID

import trio

from cortex.bench.arrivals import Arrivals, quantiles
from cortex.bench.in_process import measure
from cortex.bench.meter import Cost, metered
from cortex.config import Settings
from cortex.domain.approvals.vote import Vote
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import Submission
from cortex.domain.people import Identity
from cortex.postgres.bridge import Port
from cortex.store import approvals, jobs
from cortex.store.people import system_user

WARM_UP: Final = 20
LOOK_S: Final = 0.01
BOUND_S: Final = 10.0
IDLE_S: Final = 0.02
"""Pause between two decisions, so that each finds an idle pod."""


def decisions(dsn: str, settings: Settings, *, count: int) -> dict[str, Any]:
    """Decide requests one by one; report quantiles of decision-to-running in milliseconds."""
    waits_ms, cost = measure(dsn, settings, work=lambda port: _decide_each(port, count))
    return {"decisions": count, **quantiles(waits_ms), **cost.per("decision", count)}


async def _decide_each(port: Port, count: int) -> tuple[list[float], Cost]:
    chance = system_chance()
    arrivals = Arrivals()

    async def decide(port: Port, how_many: int) -> list[float]:
        waits_ms = []
        for _ in range(how_many):
            job = Submission(id=chance.new_id(), type="bench_gate")
            await port(jobs.submit, [job])
            vote = await _asked(port, job.id)
            await trio.sleep(IDLE_S)
            sent = time.perf_counter()
            await port(approvals.decide, [vote])
            went_on = await arrivals.of(job.id, within_s=BOUND_S, what="continue")
            waits_ms.append(1000 * (went_on - sent))
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
                    by=Identity.from_system(system_user()),
                    seen=request.digest,
                    channel="cli",
                )
            await trio.sleep(LOOK_S)
    raise TimedOutError(f"job {job_id} did not request approval within {BOUND_S:g} s")
