"""Providers whose answers begin and break: HTTP 200, message_start, then an error in the stream."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from cortex.actors.runner import TickBudget, TickResult
from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.client import DEFAULT_LIMITS, CallLimits
from cortex.agent.models.errors import ModelUnavailableError
from cortex.domain.breaker import QUIET_S, BreakerState
from cortex.domain.budget import Estimate
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import CallFailure
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.prices import LIST_PRICES
from cortex.domain.retry import CallRetry
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.store import breakers as store
from cortex.store import pulse, screen_head
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench, FactList, a_lease
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import move_clock, new_id, seeded_random
from tests.support.servers.postgres import sql

NAME = "llm:m"
REQUEST = ModelRequest(model="m", messages=({"role": "user", "content": "hello"},), max_tokens=9)
ANSWER = ModelResponse(
    model="m",
    content=({"type": "text", "text": "hello"},),
    stop_reason="end_turn",
    usage=Usage(input_tokens=1, output_tokens=1),
    message_id="m1",
)
OVERLOADED = ModelUnavailableError(
    CallFailure(model="m", host="h", type="overloaded_error", status=529), "busy"
)
SOON = CallRetry(base_s=0.01, cap_s=0.01, attempts=5)


@attrs.define
class Provider:
    """Begins each answer; while it is overloaded, breaks it off by an error event."""

    pod: "TickingPod"
    is_overloaded: bool = True
    broken_count: int = 0

    def provider_of(self, model: str) -> str:  # noqa: ARG002
        return "scripted"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(
        self,
        request: ModelRequest,  # noqa: ARG002
        *,
        on_text: Callable[[str], None] | None = None,  # noqa: ARG002
        on_open: Callable[[], None] | None = None,
        on_usage: Callable[[Usage], None] | None = None,  # noqa: ARG002
        limits: CallLimits = DEFAULT_LIMITS,  # noqa: ARG002
    ) -> ModelResponse:
        assert on_open is not None
        on_open()
        seen = self.pod.tick_count
        await eventually_async(lambda: self.pod.tick_count > seen + 1, what="the pod has looked")
        if self.is_overloaded:
            self.broken_count += 1
            raise OVERLOADED
        return ANSWER


class TickingPod(BreakerRegistry):
    """The breakers of a pod that counts its looks."""

    tick_count = 0

    async def tick(self, budget: TickBudget, /) -> TickResult:
        result = await super().tick(budget)
        self.tick_count += 1
        return result


class FreePurse:
    """Every budget has room."""

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        return Reservation(id=new_id(), caller=caller, model=model, estimate=estimate)

    async def settle(self, reservation: Reservation, **booked: Any) -> None:
        """Nothing is booked."""


def a_pod(port: FaultyPort) -> TickingPod:
    return TickingPod(port, pod_id=new_id(), rng=seeded_random())


def a_caller() -> Caller:
    lease = a_lease()
    return Caller(
        lease=lease, lineage_id=lease.job_id, tenant="default", agent_id=None, agent_version=None,
        config_id=None, key="1", prices=LIST_PRICES, call_s=60.0, idle_s=60.0, connect_s=5.0,
        retry=SOON,
    )  # fmt: skip


@attrs.define
class Fleet:
    """Jobs that call the provider in turns, as due jobs of one pod do."""

    pod: BreakerRegistry
    provider: Provider
    waiting: int
    retries_burnt: int = 0

    async def turn(self) -> None:
        """Let each waiting job try once."""
        rng = seeded_random()
        calls = ModelCalls(
            client=self.provider,
            breakers=self.pod,
            budget_guard=FreePurse(),
            facts=FactList(),
            rng=rng,
        )

        async def job() -> None:
            try:
                await calls.respond(REQUEST, a_caller())
            except Suspended:
                return
            except ModelUnavailableError:
                self.retries_burnt += 1
            else:
                self.waiting -= 1

        async with trio.open_nursery() as nursery:
            for _ in range(self.waiting):
                nursery.start_soon(job)


async def test_errors_inside_streams_burn_no_retry_and_meet_a_handful_of_calls(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten jobs, 75 seconds of `overloaded_error` events."""
    monkeypatch.setattr("cortex.runtime.calls.breakers.POLL_S", 0.005)
    pod = a_pod(bench.port)
    provider = Provider(pod)
    await bench.start(pod)
    fleet = Fleet(pod, provider, waiting=10)
    for second in range(0, 120, 5):
        provider.is_overloaded = second < 75
        move_clock(database, second)
        await pod.tick(TickBudget())
        await fleet.turn()
    assert fleet.waiting == 0
    assert fleet.retries_burnt == 0
    assert provider.broken_count <= 8
    facts = sql(database, "SELECT subtype FROM cortex.fact WHERE type = 'lifecycle' ORDER BY id")
    output = [row["subtype"] for row in facts]
    assert output.count("breaker_escalated") == 1
    assert output.count("breaker_closed") == 1
    assert output[-1] == "breaker_closed"


async def open_it(port: FaultyPort, pod: BreakerRegistry, database: str) -> None:
    """Open the breaker, and let its pause be over without anybody calling."""
    busy = failure_of(OVERLOADED)
    for _ in range(3):
        await port(store.failed, NAME, failure=busy, requests=1, probe=None)
    await pod.tick(TickBudget())
    move_clock(database, 31)


def state_of(database: str) -> str:
    (row,) = sql(database, "SELECT state FROM cortex.breaker WHERE name = $1", NAME)
    return str(row["state"])


async def test_started_answer_is_no_success_of_a_probe(port: FaultyPort, database: str) -> None:
    pod = a_pod(port)
    await open_it(port, pod, database)
    await pod.tick(TickBudget())
    async with pod.admit(NAME) as admission:
        admission.opened(idle_s=60.0)
        await pod.tick(TickBudget())
        assert state_of(database) == "HALF_OPEN"
        with pytest.raises(Suspended):
            await admission.failed(failure_of(OVERLOADED))
    (row,) = sql(database, "SELECT state, failures FROM cortex.breaker")
    assert tuple(row) == ("OPEN", 4)


async def test_answer_streaming_past_its_idle_timeout_is_a_success(
    port: FaultyPort, database: str
) -> None:
    pod = a_pod(port)
    await open_it(port, pod, database)
    await pod.tick(TickBudget())
    async with pod.admit(NAME) as admission:
        admission.opened(idle_s=0.0)
        await pod.tick(TickBudget())
        assert state_of(database) == "CLOSED", "the long rest of this stream keeps nobody waiting"
        await admission.failed(failure_of(OVERLOADED))  # that it broke later is a new failure
    (row,) = sql(database, "SELECT state, failures FROM cortex.breaker")
    assert tuple(row) == ("CLOSED", 1)


async def test_started_answers_admit_no_further_calls_yet(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, begun = a_pod(bench.port), 0

    async def stream() -> None:
        nonlocal begun
        async with pod.admit(NAME) as admission:
            begun += 1
            admission.opened(idle_s=60.0)
            await trio.sleep_forever()

    for _ in range(20):
        bench.jobs.start_soon(stream)
    await trio.testing.wait_all_tasks_blocked()
    await pod.tick(TickBudget())
    assert begun == 4
    for line in pod._lines.values():
        for admission in line.tended:
            monkeypatch.setattr(admission, "_ramps_at", trio.current_time())
    await pod.tick(TickBudget())
    await trio.testing.wait_all_tasks_blocked()
    assert begun == 20, "each of the four lets four more go"


# --- what time alone changes


async def test_uncalled_breaker_becomes_half_open_in_time(port: FaultyPort, database: str) -> None:
    pod, other = a_pod(port), a_pod(port)
    await open_it(port, pod, database)
    (page,) = await port(store.page, name=NAME)
    assert page.state == "HALF_OPEN", "readers need no pod for that"
    assert (await port(screen_head.head)).breakers == 0
    troubles = (await port(pulse.attention)).troubles
    assert [each for each in troubles if each.kind == "breaker"] == []
    for each in (pod, other, pod):
        await each.tick(TickBudget())
    assert state_of(database) == "HALF_OPEN"
    assert pod.states() == other.states() == {NAME: BreakerState.HALF_OPEN}
    facts = sql(database, "SELECT subtype FROM cortex.fact WHERE type = 'lifecycle' ORDER BY id")
    assert [row["subtype"] for row in facts] == ["breaker_opened", "breaker_half_opened"]


async def test_uncalled_breaker_closes_after_a_quiet_hour(port: FaultyPort, database: str) -> None:
    pod = a_pod(port)
    await open_it(port, pod, database)
    await pod.tick(TickBudget())
    move_clock(database, 25 + QUIET_S)
    await pod.tick(TickBudget())
    assert state_of(database) == "HALF_OPEN"
    move_clock(database, 31 + QUIET_S)
    await pod.tick(TickBudget())
    assert state_of(database) == "CLOSED"
    assert pod.states() == {NAME: BreakerState.CLOSED}


async def test_a_breaker_that_is_probed_is_not_forgotten(port: FaultyPort, database: str) -> None:
    pod, other = a_pod(port), a_pod(port)
    await open_it(port, pod, database)
    move_clock(database, 25 + QUIET_S)
    await pod.tick(TickBudget())
    async with pod.admit(NAME):
        move_clock(database, 35 + QUIET_S)
        await other.tick(TickBudget())
        assert state_of(database) == "HALF_OPEN"
