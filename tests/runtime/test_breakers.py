"""The breakers of pods: an outage meets a handful of calls, one probe, and no lost retry."""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.breaker import Breaker, BreakerState
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import UsageError
from cortex.domain.failure import Failure, FailureClass
from cortex.durable import calls
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.runtime.calls import breaker_handle
from cortex.runtime.calls.breakers import FORGET_AFTER_S, BreakerRegistry
from cortex.store import breakers as store
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import move_clock, new_id, seeded_random
from tests.support.servers.postgres import sql
from tests.support.servers.proxy import Proxy, proxy

NAME = "llm:m"
Lines = list[MutableMapping[str, Any]]


def a_pod(port: FaultyPort) -> BreakerRegistry:
    return BreakerRegistry(port, pod_id=new_id(), rng=seeded_random())


def a_failure(asked_s: float | None = None, **fields: Any) -> Failure:
    defaults = {"cls": FailureClass.TRANSIENT_APP, "code": "rate_limit", "message": "slow down"}
    return Failure(**{**defaults, "retry_after_s": asked_s, **fields})


async def fail(pod: BreakerRegistry, name: str = NAME, *, asked_s: float | None = None) -> None:
    async with pod.admit(name) as admission:
        await admission.failed(a_failure(asked_s))


async def succeed(pod: BreakerRegistry, name: str = NAME) -> None:
    async with pod.admit(name) as admission:
        admission.opened(idle_s=60.0)
        await admission.succeeded()


async def suspended(pod: BreakerRegistry, name: str = NAME) -> Suspended:
    """The suspension that a call raises."""
    with pytest.raises(Suspended) as caught:
        async with pod.admit(name):
            pytest.fail(f"{name} was called")
    assert caught.value.waiting_on == name
    return caught.value


async def until_calls_pass(pod: BreakerRegistry, *, passing: bool = True) -> None:
    """Wait until the pod knows that the breaker is closed, or that it is not."""
    line = pod._line(NAME)
    await eventually_async(lambda: line.is_closed is passing, what=f"calls pass: {passing}")


async def open_it(pod: BreakerRegistry, name: str = NAME) -> None:
    with pytest.raises(Suspended):
        await fail(pod, name, asked_s=20.0)


def state_of(dsn: str, name: str = NAME) -> str:
    return str(sql(dsn, "SELECT state FROM cortex.breaker WHERE name = $1", name)[0]["state"])


def refuse_all(port: FaultyPort) -> None:
    """From now on every statement of these tests' pods would be missed."""
    for method in (store.failed, store.succeeded, store.take_probe, store.give_back):
        port.refuse(method)


def set_event() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


@attrs.define
class Provider:
    """The other side of many calls at once: counts them, and answers when the test says so."""

    call_count: int = 0
    failure: Failure | None = None
    answer: trio.Event = attrs.field(factory=trio.Event)
    suspended: list[Suspended] = attrs.field(factory=list)
    done_count: int = 0

    async def call(self, pod: BreakerRegistry, name: str = NAME) -> None:
        """Make a call as a job does, and note its suspension."""
        try:
            async with pod.admit(name) as admission:
                self.call_count += 1
                await self.answer.wait()
                if self.failure is not None:
                    await admission.failed(self.failure)
                else:
                    admission.opened(idle_s=60.0)
                    await admission.succeeded()
                self.done_count += 1
        except Suspended as wait:
            self.suspended.append(wait)


# --- a healthy breaker


async def test_a_healthy_breaker_costs_no_statement(port: FaultyPort) -> None:
    pod: calls.CircuitBreakers = a_pod(port)
    refuse_all(port)
    for _ in range(3):
        async with pod.admit(NAME) as admission:
            admission.opened(idle_s=60.0)
            await admission.succeeded()
        async with pod.admit(NAME) as admission:
            await admission.failed(a_failure(cls=FailureClass.PERMANENT))
        async with pod.admit(NAME):
            pass  # no report
    assert port.faults_left == 4


async def test_an_impossible_name_is_refused(port: FaultyPort) -> None:
    with pytest.raises(UsageError, match="disk:x"):
        await fail(a_pod(port), "disk:x")


async def test_hundreds_of_calls_start_after_the_first_answers(bench: Bench) -> None:
    pod, provider = a_pod(bench.port), Provider()
    for _ in range(300):
        bench.jobs.start_soon(provider.call, pod)
    await trio.testing.wait_all_tasks_blocked()
    assert provider.call_count == 4
    provider.answer.set()
    await eventually_async(lambda: provider.done_count == 300, what="all calls succeeded")
    assert provider.suspended == []


async def test_tool_calls_start_at_once(bench: Bench) -> None:
    pod, provider = a_pod(bench.port), Provider()
    for _ in range(50):
        bench.jobs.start_soon(provider.call, pod, "tool:run_command")
    await trio.testing.wait_all_tasks_blocked()
    assert provider.call_count == 50
    provider.answer.set()


@pytest.mark.parametrize("trouble", ["own failure", "another pod's outage"])
async def test_slow_start_repeats_after_any_trouble(bench: Bench, trouble: str) -> None:
    pod, other, provider = a_pod(bench.port), a_pod(bench.port), Provider()
    for _ in range(10):
        await succeed(pod)
    if trouble == "own failure":
        await fail(pod)
    else:
        await open_it(other)
        await pod.tick(TickBudget())
        await bench.port(store.close, NAME, by="ana", reason="r")
        await pod.tick(TickBudget())
    for _ in range(50):
        bench.jobs.start_soon(provider.call, pod)
    await trio.testing.wait_all_tasks_blocked()
    assert provider.call_count == 4


# --- an outage


@pytest.mark.parametrize("asked_s", [None, 20.0])
async def test_an_outage_meets_a_handful_of_two_hundred_jobs(
    bench: Bench, database: str, asked_s: float | None
) -> None:
    pods = [a_pod(bench.port), a_pod(bench.port)]
    provider = Provider(failure=a_failure(asked_s))
    for number in range(200):
        bench.jobs.start_soon(provider.call, pods[number % 2])
    provider.answer.set()
    await eventually_async(
        lambda: provider.done_count + len(provider.suspended) == 200, what="all have an answer"
    )
    assert provider.call_count <= 12
    # Those before the one that opened it may call again in their step; no other caller has lost it.
    assert provider.done_count <= 2
    assert state_of(database) == "OPEN"
    longest_s = asked_s or 30.0
    assert all(longest_s - 5 < (w.delay_s or 0) < longest_s + 1 for w in provider.suspended)


async def test_burst_of_failures_is_recorded_in_few_statements(bench: Bench, database: str) -> None:
    pod, provider = a_pod(bench.port), Provider(failure=a_failure())
    for _ in range(300):
        bench.jobs.start_soon(provider.call, pod, "tool:t")
    await trio.testing.wait_all_tasks_blocked()
    provider.answer.set()
    await eventually_async(
        lambda: provider.done_count + len(provider.suspended) == 300, what="all have an answer"
    )
    (row,) = sql(database, "SELECT failures, version, escalated_at FROM cortex.breaker")
    assert (row["failures"], row["version"]) == (5, 1 + 5), "it was made, and written five times"
    assert row["escalated_at"] is not None
    assert provider.done_count == 2


async def test_open_breaker_reports_reason_and_return_time(
    port: FaultyPort, log_lines: Lines
) -> None:
    pod = a_pod(port)
    await open_it(pod)
    output = await suspended(pod)
    assert output.delay_s is not None
    assert 19 < output.delay_s < 21
    assert output.reason == "breaker llm:m is open: rate_limit: slow down"
    assert [line["event"] for line in log_lines] == ["breaker opened"]


async def test_permanent_failure_under_an_open_breaker_does_not_suspend(
    port: FaultyPort,
) -> None:
    pod = a_pod(port)
    async with pod.admit(NAME) as admission:
        await open_it(pod)
        await admission.failed(a_failure(cls=FailureClass.PERMANENT))  # does not raise


async def test_pods_share_the_states_of_breakers(port: FaultyPort) -> None:
    one, other = a_pod(port), a_pod(port)
    await open_it(one)
    await other.tick(TickBudget())
    await suspended(other)
    await fail(other, "tool:t")
    await one.tick(TickBudget())
    await succeed(one, "tool:t")  # a failure of another pod: this success is reported
    await other.tick(TickBudget())
    assert [breaker.name for breaker in (await port(store.look, limit=9))[1]] == [NAME]


async def test_queued_calls_are_suspended_when_another_pod_opens_the_breaker(bench: Bench) -> None:
    one, other, provider = a_pod(bench.port), a_pod(bench.port), Provider()
    for _ in range(20):
        bench.jobs.start_soon(provider.call, one)
    await trio.testing.wait_all_tasks_blocked()
    await open_it(other)
    await one.tick(TickBudget())
    await eventually_async(lambda: len(provider.suspended) == 16, what="the others are turned away")
    assert provider.call_count == 4


async def test_call_admitted_as_the_breaker_opens_is_suspended(bench: Bench) -> None:
    pod, provider = a_pod(bench.port), Provider()
    for _ in range(5):
        bench.jobs.start_soon(provider.call, pod)
    await trio.testing.wait_all_tasks_blocked()
    line = pod._line(NAME)
    line.ramp._limit.value += 1
    line.ramp._let_in()
    opened = Breaker(name=NAME, state=BreakerState.OPEN, version=9, forced_by="ana")
    line.learn(opened, asked_at=trio.current_time())
    await eventually_async(lambda: provider.suspended, what="the fifth is turned away")
    assert provider.call_count == 4


# --- the probe


async def test_one_probe_runs_and_its_success_closes_the_breaker(
    bench: Bench, database: str
) -> None:
    pods = [a_pod(bench.port), a_pod(bench.port)]
    await open_it(pods[0])
    move_clock(database, 21)
    for pod in pods:
        await pod.tick(TickBudget())
    provider = Provider()
    for number in range(100):
        bench.jobs.start_soon(provider.call, pods[number % 2])
    await eventually_async(lambda: len(provider.suspended) == 99, what="99 wait")
    assert provider.call_count == 1
    assert all(0 < (w.delay_s or 0) <= 3 for w in provider.suspended)
    assert "tried by one call" in provider.suspended[0].reason
    provider.answer.set()
    await eventually_async(lambda: provider.done_count == 1, what="the probe succeeded")
    assert state_of(database) == "CLOSED"
    for pod in pods:
        await pod.tick(TickBudget())
        await succeed(pod)


async def test_failed_probe_reopens_the_breaker(port: FaultyPort, database: str) -> None:
    pod = a_pod(port)
    await open_it(pod)
    move_clock(database, 21)
    await pod.tick(TickBudget())
    with pytest.raises(Suspended) as caught:
        await fail(pod)
    assert 29 < (caught.value.delay_s or 0) < 31
    assert state_of(database) == "OPEN"


@pytest.mark.parametrize("ending", ["cancelled", "permanent", "no report"])
async def test_probe_without_an_outcome_is_given_back(
    port: FaultyPort, database: str, ending: str
) -> None:
    pod, other = a_pod(port), a_pod(port)
    await open_it(pod)
    move_clock(database, 21)
    await pod.tick(TickBudget())
    await other.tick(TickBudget())
    with trio.CancelScope() as scope:
        async with pod.admit(NAME) as admission:
            await suspended(other)
            if ending == "cancelled":
                scope.cancel()
                await trio.lowlevel.checkpoint()
            elif ending == "permanent":
                await admission.failed(a_failure(cls=FailureClass.PERMANENT))
    assert state_of(database) == "HALF_OPEN"
    await other.tick(TickBudget())
    await succeed(other)
    assert state_of(database) == "CLOSED"


async def test_a_killed_prober_blocks_for_its_lease_only(port: FaultyPort, database: str) -> None:
    killed, other = a_pod(port), a_pod(port)
    await open_it(killed)
    move_clock(database, 21)
    await killed.tick(TickBudget())
    await other.tick(TickBudget())
    probe = killed.admit(NAME)
    late = await probe.__aenter__()
    await other.tick(TickBudget())
    await suspended(other)
    move_clock(database, 21 + breaker_handle.PROBE_LEASE_S + 1)
    await other.tick(TickBudget())
    async with other.admit(NAME) as admission:
        await late.succeeded()  # it was only very slow: it decides nothing any more
        assert state_of(database) == "HALF_OPEN"
        await admission.succeeded()
    assert state_of(database) == "CLOSED"
    await probe.__aexit__(None, None, None)


async def test_a_living_prober_keeps_its_probe(
    port: FaultyPort, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, other = a_pod(port), a_pod(port)
    await open_it(pod)
    move_clock(database, 21)
    await pod.tick(TickBudget())
    async with pod.admit(NAME) as admission:
        move_clock(database, 45)
        monkeypatch.setattr(admission, "_renew_at", 0.0)
        await pod.tick(TickBudget())
        move_clock(database, 70)
        await other.tick(TickBudget())
        await suspended(other)


async def test_a_host_needs_two_successes(port: FaultyPort, database: str) -> None:
    pod = a_pod(port)
    await open_it(pod, "http:example.org")
    move_clock(database, 21)
    await pod.tick(TickBudget())
    await succeed(pod, "http:example.org")
    assert state_of(database, "http:example.org") == "HALF_OPEN"
    await succeed(pod, "http:example.org")
    assert state_of(database, "http:example.org") == "CLOSED"


async def test_unreported_calls_are_counted_with_the_next_failure(
    port: FaultyPort, database: str
) -> None:
    pod, name = a_pod(port), "http:example.org"
    for _ in range(5):
        await succeed(pod, name)
    for _ in range(4):
        await fail(pod, name)
    with pytest.raises(Suspended):
        await fail(pod, name)
    assert sql(database, "SELECT requests FROM cortex.breaker")[0]["requests"] == 10


async def test_forgotten_breaker_is_created_again(
    port: FaultyPort, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_pod(port)
    for outage in range(1, 7):
        await open_it(pod)
        move_clock(database, 25 * outage)
        await pod.tick(TickBudget())
        await succeed(pod)
    async with pod.admit(NAME):  # a busy pod remembers it
        move_clock(database, FORGET_AFTER_S + 300)
        monkeypatch.setattr(pod, "_forget_at", 0.0)
        await pod.tick(TickBudget())
        assert sql(database, "SELECT FROM cortex.breaker") == []
        for _ in range(2):
            await fail(pod)
            await pod.tick(TickBudget())
        with pytest.raises(Suspended):
            await fail(pod)
    assert state_of(database) == "OPEN"


# --- people


async def test_breaker_opened_by_a_person_stays_open_until_closed(
    port: FaultyPort, database: str
) -> None:
    pod = a_pod(port)
    await port(store.force_open, NAME, by="ana", reason="no budget")
    await pod.tick(TickBudget())
    output = await suspended(pod)
    assert output.reason == "breaker llm:m is held open by ana: no budget"
    assert output.delay_s is not None
    move_clock(database, 1e6)
    await pod.tick(TickBudget())
    await suspended(pod)
    await port(store.close, NAME, by="ana", reason="paid")
    await pod.tick(TickBudget())
    await succeed(pod)


async def test_a_hold_with_an_end_ends_by_itself(port: FaultyPort, database: str) -> None:
    pod, other = a_pod(port), a_pod(port)
    await port(store.force_open, NAME, by="ana", reason="deploy", for_s=5.0)
    for each in (pod, other):
        await each.tick(TickBudget())
    output = await suspended(pod)
    assert output.reason == "breaker llm:m is held open by ana: deploy"
    assert output.delay_s is not None
    assert 0 < output.delay_s < 6, "not as long as an ordinary look at a hold takes"
    move_clock(database, 6)
    for each in (pod, other):
        await each.tick(TickBudget())
    await succeed(pod)
    await other.tick(TickBudget())
    await succeed(other)
    assert state_of(database) == "CLOSED"


async def test_a_hint_is_followed_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cortex.runtime.calls.breakers.POLL_S", 60.0)
    pod = a_pod(bench.port)
    await bench.start(pod)
    await bench.port(store.force_open, NAME, by="ana", reason="r")
    pod.wake()

    await until_calls_pass(pod, passing=False)


async def test_the_log_asks_for_a_person_once(port: FaultyPort, log_lines: Lines) -> None:
    pod = a_pod(port)
    provider = Provider(failure=a_failure(), answer=set_event())
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(provider.call, pod, "tool:t")
    await pod.tick(TickBudget())
    events = [line["event"] for line in log_lines]
    assert events.count("breaker needs a person") == 1


# --- outages of the database


@asynccontextmanager
async def through(network: Proxy) -> AsyncIterator[FaultyPort]:
    profile = Profile(dsn=network.dsn, hot_path=True, bound_s=2.0)
    async with open_port(profile, rng=seeded_random()) as opened:
        yield FaultyPort(opened)


async def test_calls_without_the_database_run_and_are_counted_locally(
    database: str, log_lines: Lines
) -> None:
    with proxy(database) as network:
        async with through(network) as port:
            pod = a_pod(port)
            await pod.tick(TickBudget())
            network.refuse()
            await succeed(pod)
            await fail(pod)
            await fail(pod)
            with pytest.raises(Suspended):
                await fail(pod)
            await suspended(pod)
            events = [line["event"] for line in log_lines]
            assert events.count("breaker judged by this pod alone") == 1  # then no call was made
            network.heal()
            await pod.tick(TickBudget())
            await succeed(pod)  # the record knows of no outage
    assert sql(database, "SELECT FROM cortex.breaker") == []


async def test_a_black_hole_costs_one_bound_and_not_one_for_each_call(database: str) -> None:
    with proxy(database) as network:
        async with through(network) as port:
            pod, provider = a_pod(port), Provider(failure=a_failure(), answer=set_event())
            await pod.tick(TickBudget())
            network.blackhole()
            began_at = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(provider.call, pod, "tool:t")
            assert trio.current_time() - began_at < 8.0
            assert provider.done_count == 2
            network.heal()


async def test_a_probe_is_not_taken_without_the_database(port: FaultyPort, database: str) -> None:
    pod = a_pod(port)
    await open_it(pod)
    move_clock(database, 21)
    await pod.tick(TickBudget())
    port.refuse(store.take_probe)
    await suspended(pod)
    await suspended(pod)  # no call is made until the next look
    await pod.tick(TickBudget())
    await succeed(pod)


async def test_the_actor_survives_an_outage(bench: Bench) -> None:
    pod = a_pod(bench.port)
    bench.port.refuse(store.look)
    await bench.start(pod)
    await bench.port(store.force_open, NAME, by="ana", reason="r")
    pod.wake()
    await until_calls_pass(pod, passing=False)


async def test_an_old_answer_does_not_undo_a_new_one(port: FaultyPort) -> None:
    pod = a_pod(port)
    asked_at = trio.current_time()
    await open_it(pod)
    line = pod._line(NAME)
    line.learn_absence(asked_at=asked_at)
    line.learn(Breaker(name=NAME), asked_at=asked_at)
    await suspended(pod)


# --- memory


async def test_idle_breakers_are_dropped(
    port: FaultyPort, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = a_pod(port)
    monkeypatch.setattr("cortex.runtime.calls.breaker_handle.COLD_AFTER_S", -1.0)
    async with pod.admit("http:busy"):
        for number in range(50):
            await succeed(pod, f"http:{number}")
        await pod.tick(TickBudget())
        assert list(pod._lines) == ["http:busy"]
    await pod.tick(TickBudget())
    assert not pod._lines
    await fail(pod, "http:once")
    move_clock(database, FORGET_AFTER_S + 1)
    monkeypatch.setattr(pod, "_forget_at", 0.0)
    await pod.tick(TickBudget())
    assert sql(database, "SELECT FROM cortex.breaker") == []
