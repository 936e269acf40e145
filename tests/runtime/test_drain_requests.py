"""Drain requests: while one exists nothing is claimed, and its end takes effect at once."""

import pytest

from cortex.actors.runner import TickBudget
from cortex.runtime.maintenance.drain_requests import DrainRequests
from cortex.runtime.running import Observer, Stop
from cortex.store import drains, pods
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench


def an_actor(bench: Bench, output: list[bool]) -> DrainRequests:
    requests = DrainRequests(
        bench.port,
        pod_id=bench.pod.id,
        running=bench.running,
        on_change=lambda: output.append(bench.running.is_drain_requested),
        rng=bench.rng,
    )
    bench.running.observers.append(requests)
    return requests


class Freed(Observer):
    """Counts how often the pod may take jobs again."""

    count = 0

    def drain_withdrawn(self) -> None:
        self.count += 1


async def test_drain_request_actor_reports_only_changes(bench: Bench) -> None:
    await bench.port(pods.register, bench.pod)
    output: list[bool] = []
    freed = Freed()
    bench.running.observers.append(freed)
    actor = an_actor(bench, output)
    await actor.tick(TickBudget())
    assert (output, bench.running.drain_request) == ([], None)
    first, second = await bench.claimed(2)
    kept = bench.running.add(first)
    await bench.port(drains.request, bench.pod.id, by="ana", reason="deploy")
    for _ in range(2):
        await actor.tick(TickBudget())
    request = bench.running.drain_request
    assert request is not None
    assert (output, request.jobs_left) == ([True], 1)
    assert kept.stop is None, "it comes to its next checkpoint"
    late = bench.running.add(second)
    assert late.stop is Stop.HANDED_BACK, "a claim that was on its way"
    for job in (late, kept):
        bench.running.remove(job)
    assert output == [True, True], "it is notified when the last one is gone"
    await bench.port(drains.withdraw, bench.pod.id, by="ana")
    await actor.tick(TickBudget())
    assert (output[-1], freed.count, bench.running.hands_back()) == (False, 1, False)


async def test_woken_drain_requests_poll_at_once_and_survive_an_outage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.maintenance.drain_requests.POLL_S", 60.0)
    await bench.port(pods.register, bench.pod)
    actor = an_actor(bench, [])
    bench.port.refuse(drains.is_requested)
    await bench.start(actor)
    await eventually_async(lambda: bench.port.faults_left == 0, what="it met the outage")
    await bench.port(drains.request, bench.pod.id, by="ana")
    actor.wake()
    await eventually_async(lambda: bench.running.is_drain_requested, what="it has heard of it")
