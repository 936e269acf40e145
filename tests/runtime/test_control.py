"""Control, the cache of specifications, and the lag of the loop."""

import time
from typing import Any

import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.errors import NotFoundError
from cortex.runtime.jobs.policies import SpecCache
from cortex.runtime.loop_lag import LoopLag
from cortex.runtime.maintenance.control import Control
from cortex.runtime.running import Stop
from cortex.store import jobs, specs
from cortex.store.specs import SpecKind
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import new_id


def a_control(bench: Bench) -> Control:
    return Control(bench.port, pod_id=bench.pod.id, running=bench.running, rng=bench.rng)


async def test_a_job_that_a_person_cancelled_is_stopped_and_no_other(bench: Bench) -> None:
    wanted, other = await bench.claimed(2)
    stopped, kept = bench.running.add(wanted), bench.running.add(other)
    control = a_control(bench)
    await control.tick(TickBudget())
    assert [job.stop for job in (stopped, kept)] == [None, None]
    await bench.port(jobs.cancel, wanted.lease.job_id, by="ana", reason="")
    await control.tick(TickBudget())
    assert [job.stop for job in (stopped, kept)] == [Stop.CANCELLED, None]


async def test_woken_control_polls_at_once_and_survives_an_outage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.maintenance.control.POLL_S", 60.0)
    (claim,) = await bench.claimed()
    job = bench.running.add(claim)
    control = a_control(bench)
    bench.port.refuse(jobs.cancel_requests)
    await bench.start(control)
    await eventually_async(lambda: bench.port.faults_left == 0, what="it met the outage")
    await bench.port(jobs.cancel, claim.lease.job_id, by="ana", reason="")
    control.wake()
    await eventually_async(lambda: job.stop is Stop.CANCELLED, what="the job is stopped")


async def test_a_request_is_found_without_being_woken(bench: Bench) -> None:
    (claim,) = await bench.claimed()
    job = bench.running.add(claim)
    await bench.start(a_control(bench))
    await bench.port(jobs.cancel, claim.lease.job_id, by="ana", reason="")
    await eventually_async(lambda: job.stop is Stop.CANCELLED, what="the job is stopped")


async def test_control_without_jobs_sends_no_query(bench: Bench) -> None:
    bench.port.refuse(jobs.cancel_requests)
    await a_control(bench).tick(TickBudget())
    assert bench.port.faults_left == 1


# --- specifications of agents


async def apply(bench: Bench, agent_id: Any, model: str) -> None:
    spec = {"model": model}
    await bench.port(
        specs.apply, SpecKind.AGENT, new_id=agent_id, name="researcher", spec=spec, by="ana"
    )


async def test_a_version_is_asked_for_once(bench: Bench) -> None:
    agent_id = new_id()
    await apply(bench, agent_id, "m")
    cache = SpecCache(bench.port, rng=bench.rng)
    assert await cache.agent(agent_id, 1) == {"model": "m"}
    await apply(bench, agent_id, "n")
    bench.port.refuse(specs.spec)
    assert await cache.agent(agent_id, 1) == {"model": "m"}  # no question asked
    assert bench.port.faults_left == 1


async def test_an_unknown_version_is_no_answer_to_keep(bench: Bench) -> None:
    agent_id = new_id()
    cache = SpecCache(bench.port, rng=bench.rng)
    with pytest.raises(NotFoundError):
        await cache.agent(agent_id, 1)
    await apply(bench, agent_id, "m")
    assert await cache.agent(agent_id, 1) == {"model": "m"}


async def test_the_least_recently_used_is_dropped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.jobs.policies.SPECS_CACHED_MAX", 2)
    agent_id = new_id()
    for model in ("a", "b", "c"):
        await apply(bench, agent_id, model)
    cache = SpecCache(bench.port, rng=bench.rng)
    for version in (1, 2, 1, 3):
        await cache.agent(agent_id, version)
    assert [version for *_, version in cache._specs] == [1, 3]


# --- lag


async def test_worst_loop_lag_is_reported_once(nursery: trio.Nursery) -> None:
    lag = LoopLag()
    await nursery.start(lag.run)
    await trio.testing.wait_all_tasks_blocked()
    lag.take_ms()
    busy_until = time.monotonic() + 0.4
    while time.monotonic() < busy_until:
        pass
    worst = 0.0

    def measured() -> bool:
        nonlocal worst
        worst = max(worst, lag.take_ms())
        return worst > 200

    await eventually_async(measured, what="the delay is measured")
    await eventually_async(lambda: lag.take_ms() < 200, what="it is not reported again")
