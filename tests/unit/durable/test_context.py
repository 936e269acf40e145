"""A handler's context: steps, model and tool calls, many of them at once."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from attrs import define

from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import (
    DivergedError,
    InvalidValueError,
    RejectedError,
    TimedOutError,
    TransientError,
    UsageError,
)
from cortex.domain.job import Claim, StepDone
from cortex.domain.prices import LIST_PRICES
from cortex.durable.attempt import Attempt, JobLimits
from cortex.durable.context import Context
from tests.support.records.factories import (
    DefaultPolicies,
    EchoModel,
    EchoTools,
    FactList,
    Record,
    TrioClock,
    a_claim,
    a_context,
    run_twice,
    services,
)
from tests.support.records.rows import new_id

TURNS = 40  # the scheduler's order is chance: one run proves nothing


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


async def wait_for_ever() -> None:
    await trio.sleep_forever()


async def take(seconds: float) -> None:
    """A duration by trio's clock, which jumps."""
    with trio.move_on_after(seconds):
        await wait_for_ever()


async def fail(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise error


@attrs.frozen
class Pair:
    one: int
    other: int


async def swapped(pair: Pair) -> Pair:
    return Pair(pair.other, pair.one)


async def test_a_step_runs_once_in_the_life_of_the_job() -> None:
    ran: list[int] = []

    async def work(number: int) -> int:
        ran.append(number)
        return number + 1

    assert await run_twice(lambda ctx: ctx.step("a", work, 1)) == [2, 2]
    assert ran == [1]


async def test_values_come_back_in_their_declared_type_from_both() -> None:
    results = await run_twice(lambda ctx: ctx.step("a", swapped, Pair(1, 2)))
    assert results == [Pair(2, 1)] * 2


async def test_a_changed_argument_diverges_and_is_named() -> None:
    record = Record()
    await a_context(record).step("a", double, 1)
    with pytest.raises(DivergedError, match="number: 1 → 2"):
        await a_context(record).step("a", double, 2)


async def test_another_function_with_the_same_values_is_the_same_step() -> None:
    record = Record()
    await a_context(record).step("a", double, 1)

    async def renamed(number: int, factor: int = 2) -> int:
        raise AssertionError((number, factor))

    assert await a_context(record).step("a", renamed, number=1) == 2


async def test_changed_length_of_a_started_timer_is_ignored(
    autojump_clock: object,
) -> None:
    record = Record()
    await a_context(record).sleep("rest", seconds=1)
    began = trio.current_time()
    await a_context(record).sleep("rest", days=3)
    assert trio.current_time() == began
    with pytest.raises(DivergedError, match="nothing → 1"):
        await a_context(record).step("rest", double, 1)


async def test_an_input_that_is_no_json_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidValueError, match="input of step 'a'"):
        _ = a_context().step("a", double, object())


async def test_a_step_that_is_too_slow_is_ended_and_named(autojump_clock: object) -> None:
    record = Record()
    with pytest.raises(TimedOutError, match=r"step 'slow' took longer than 2\.5 seconds"):
        await a_context(record).step("slow", trio.sleep_forever, timeout=2.5)
    assert record.steps == []


class KnownLimits(DefaultPolicies):
    """Finds the limits without a database, as a pod does for jobs that began on it."""

    def known_limits(self, claim: Claim) -> JobLimits | None:  # noqa: ARG002
        return JobLimits(
            prices=LIST_PRICES, call_s=300.0, idle_s=60.0, connect_s=30.0, step_s=600.0
        )


@pytest.mark.parametrize("policies", [DefaultPolicies(), KnownLimits()])
async def test_a_step_without_a_limit_of_its_own_has_the_default(
    autojump_clock: object, policies: DefaultPolicies
) -> None:
    began = trio.current_time()
    context = a_context(claim=a_claim(left_s=3600.0), policies=policies)
    with pytest.raises(TimedOutError, match="step 'slow' took longer than 600 seconds"):
        await context.step("slow", trio.sleep_forever)
    assert trio.current_time() - began == pytest.approx(600.0)


@pytest.mark.parametrize("limit_s", [None, 60.0])
async def test_limit_beyond_the_jobs_own_never_fires(
    autojump_clock: object, limit_s: float | None
) -> None:
    context = a_context(claim=a_claim(left_s=60.0), policies=KnownLimits())
    with trio.move_on_after(1000.0) as job:
        await context.step("slow", trio.sleep_forever, timeout=limit_s)
    assert job.cancelled_caught


async def test_a_shorter_limit_fires_before_the_jobs_own(autojump_clock: object) -> None:
    context = a_context(claim=a_claim(left_s=60.0), policies=KnownLimits())
    with pytest.raises(TimedOutError, match="step 'slow' took longer than 59 seconds"):
        await context.step("slow", trio.sleep_forever, timeout=59.0)


async def test_the_limit_of_a_step_is_not_that_of_its_commit(autojump_clock: object) -> None:
    @attrs.define
    class SlowRecord(Record):
        async def record(self, operation: StepDone) -> None:
            with trio.move_on_after(100):
                await wait_for_ever()
            await super().record(operation)

    record = SlowRecord()
    assert await a_context(record).step("a", double, 1, timeout=1) == 2
    assert record.keys == ["a"]


# --- model and tool calls


async def test_a_model_is_asked_once_in_the_life_of_the_job() -> None:
    model = EchoModel()
    ask: Callable[[Context], Awaitable[Any]] = lambda ctx: ctx.llm(  # noqa: E731
        "ask", model="m", messages=[{"role": "user", "content": "hello"}]
    )
    first, second = await run_twice(ask, models=model)
    assert first == second
    assert first.text == "hello"
    assert len(model.asked) == 1


async def test_a_changed_prompt_diverges() -> None:
    record = Record()
    await a_context(record).llm("ask", model="m", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(DivergedError, match="'ask'"):
        await a_context(record).llm("ask", model="m", messages=[{"role": "user", "content": "b"}])


async def test_usage_of_a_replayed_call_is_not_counted_twice() -> None:
    record = Record()
    ctx = a_context(record)
    await ctx.llm("ask", model="m", messages=[{"role": "user", "content": "a"}])
    assert ctx.usage.total_tokens == 11
    again = a_context(record)
    assert again.usage.total_tokens == 11
    await again.llm("ask", model="m", messages=[{"role": "user", "content": "a"}])
    assert again.usage.total_tokens == 11


async def test_a_tool_is_called_once_with_an_id_of_its_own() -> None:
    tools, claim = EchoTools(), a_claim()
    record = Record()
    for _ in range(2):
        ctx = a_context(record, claim, tools=tools)
        assert await ctx.tool("look", "eye", {"at": "it"}) == {"at": "it"}
        assert await ctx.tool("look", "eye", {"at": "it"}) == {"at": "it"}
    job_id = claim.lease.job_id
    assert tools.called == [("eye", f"{job_id}/look"), ("eye", f"{job_id}/look#2")]


async def test_a_tools_error_is_recorded_only_if_a_result_is_made_of_it() -> None:
    record, tools = Record(), EchoTools(error=OSError("no route"))
    with pytest.raises(OSError, match="no route"):
        await a_context(record, tools=tools).tool("a", "t", {})
    assert record.steps == []
    output = await a_context(record, tools=tools).tool("a", "t", {}, on_error=repr)
    assert output == "OSError('no route')"
    assert record.keys == ["a"]


# --- concurrency


async def test_gather_returns_results_in_order() -> None:
    ctx = a_context()
    assert await ctx.gather(*(ctx.step("a", double, n) for n in range(20))) == [
        2 * n for n in range(20)
    ]
    assert await ctx.gather() == []


async def test_steps_of_one_name_replay_under_any_order_of_the_scheduler() -> None:
    async def handler(ctx: Context) -> list[Any]:
        results: list[int] = await ctx.gather(*(ctx.step("same", double, n) for n in range(8)))
        return results

    for _ in range(TURNS):
        first, second = await run_twice(handler)
        assert first == second == [2 * n for n in range(8)]


async def test_model_and_tool_calls_of_one_name_replay_too() -> None:
    async def handler(ctx: Context) -> list[Any]:
        asked = [
            ctx.llm("same", model="m", messages=[{"role": "user", "content": str(n)}])
            for n in range(5)
        ]
        called = [ctx.tool("same tool", "t", {"n": n}) for n in range(5)]
        answers: list[Any] = await ctx.gather(*asked, *called)
        return [answers[n].text for n in range(5)] + answers[5:]

    expected = [str(n) for n in range(5)] + [{"n": n} for n in range(5)]
    for _ in range(TURNS):
        assert await run_twice(handler) == [expected, expected]


async def test_a_record_of_some_of_the_concurrent_steps_is_completed() -> None:
    """A pod died between two commits: the recorded ones are kept, the others run."""
    for turn in range(TURNS):
        record = Record()
        ctx = a_context(record)
        await ctx.gather(*(ctx.step("same", double, n) for n in range(8)))
        record.steps = record.steps[: turn % 8]
        again = a_context(record)
        found = await again.gather(*(again.step("same", double, n) for n in range(8)))
        assert found == [2 * n for n in range(8)]
        assert [step.seq for step in record.steps] == list(range(1, 9))


async def test_the_first_error_is_raised_as_it_is_and_ends_the_others(
    autojump_clock: object,
) -> None:
    ended = trio.Event()

    async def waits() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    ctx, error = a_context(), ValueError("first")
    with pytest.raises(ValueError, match="first") as caught:
        await ctx.gather(waits(), fail(error))
    assert caught.value is error
    assert ended.is_set()


async def test_several_errors_at_once_come_as_a_group() -> None:
    ready = trio.Event()

    async def fails_when_ready(error: Exception) -> None:
        await ready.wait()
        raise error

    async def let_go() -> None:
        await trio.testing.wait_all_tasks_blocked()
        ready.set()

    with pytest.RaisesGroup(ValueError, KeyError):
        await a_context().gather(
            fails_when_ready(ValueError("a")), fails_when_ready(KeyError("b")), let_go()
        )


async def test_a_lost_lease_ends_all_branches_past_job_code_that_swallows() -> None:
    record = Record(refuse=LeaseLost("gone"))
    ctx = a_context(record)

    async def swallows() -> Any:
        try:
            return await ctx.step("a", double, 1)
        except Exception:  # noqa: BLE001
            return "swallowed"

    with pytest.raises(LeaseLost):
        await ctx.gather(swallows(), wait_for_ever())


async def test_cancelled_gather_raises_only_the_cancellation() -> None:
    ctx = a_context()
    with trio.CancelScope() as scope:
        scope.cancel()
        await ctx.gather(wait_for_ever(), wait_for_ever())
    assert scope.cancelled_caught


# --- what it says of itself


async def test_a_context_knows_its_job() -> None:
    claim = a_claim()
    ctx = Context(Attempt(claim, a_context()._journal, services(workspaces=Path("/w"))))
    assert (ctx.job_id, ctx.attempt) == (claim.lease.job_id, 1)
    assert ctx.workspace == Path(f"/w/{claim.lease.job_id}")
    assert await ctx.agent_spec() is None


async def test_the_specification_is_that_of_the_version_at_submit() -> None:
    asked: list[Any] = []

    class Specs:
        async def agent(self, agent_id: Any, version: int) -> dict[str, Any]:
            asked.append((agent_id, version))
            return {"model": "m"}

    agent_id = new_id()
    ctx = a_context(claim=a_claim(agent_id=agent_id, agent_version=3), specs=Specs())
    assert await ctx.agent_spec() == {"model": "m"}
    assert asked == [(agent_id, 3)]


async def test_a_step_that_may_be_repeated_is_called_again_inside_the_step(
    autojump_clock: object,
) -> None:
    facts, record = FactList(), Record()
    failures: list[Exception] = [ConnectionResetError("cut"), TransientError("busy")]

    async def fetch() -> str:
        if failures:
            raise failures.pop(0)
        return "page"

    ctx, began = a_context(record, facts=facts), trio.current_time()
    assert await ctx.step("fetch", fetch, repeat="default") == "page"
    assert record.keys == ["fetch"]
    assert [(key, failure.code) for key, failure, _ in facts.failures] == [
        ("fetch", "connection_reset"),
        ("fetch", "transient"),
    ]
    assert facts.resolved_count == 2
    assert 3 <= trio.current_time() - began <= 4.5


async def test_step_is_repeated_only_on_request_for_transient_errors_with_time(
    autojump_clock: object,
) -> None:
    calls = 0

    async def fetch(how: str) -> None:
        nonlocal calls
        calls += 1
        raise RejectedError("no") if how == "never" else ConnectionResetError(how)

    cut = "passes"
    with pytest.raises(ConnectionResetError):
        await a_context().step("unasked", fetch, cut)
    with pytest.raises(RejectedError):
        await a_context().step("never", fetch, "never", repeat="default")
    with pytest.raises(ConnectionResetError):
        await a_context().step("short", fetch, cut, repeat="default", timeout=0.9)
    assert calls == 3
    with pytest.raises(ConnectionResetError):
        await a_context().step("twice", fetch, cut, repeat="realtime")
    assert calls == 5


async def test_suspended_branch_lets_the_others_end_first() -> None:
    record, gate = Record(), trio.Event()

    async def deploy() -> str:
        await gate.wait()
        return "deployed"

    async def wish(delay_s: float | None) -> None:
        raise Suspended(f"llm:{delay_s}", "open", delay_s=delay_s)

    ctx = a_context(record)
    caught: list[Suspended] = []

    async def gather() -> None:
        try:
            await ctx.gather(wish(20), ctx.step("deploy", deploy), wish(None), wish(5))
        except Suspended as suspended:
            caught.append(suspended)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather)
        await trio.testing.wait_all_tasks_blocked()
        assert not caught
        gate.set()
    assert record.keys == ["deploy"]
    assert [each.waiting_on for each in caught] == ["llm:None"], "a person takes longest"


async def test_a_failure_still_ends_the_others_at_once() -> None:
    async def wish() -> None:
        raise Suspended("llm:x", "open", delay_s=20)

    with pytest.raises(RejectedError):
        await a_context().gather(wish(), fail(RejectedError("no")), wait_for_ever())


@define
class SlowRecord(Record):
    """Takes ten minutes to record, as while the database is away."""

    async def record(self, operation: StepDone) -> None:
        await take(600)
        await Record.record(self, operation)


async def test_the_time_that_the_record_takes_is_not_the_steps(
    autojump_clock: object,
) -> None:
    record = SlowRecord()
    ctx = a_context(record)
    with ctx.clocked(10) as scope:
        for name in ("first", "second"):
            await ctx.step(name, take, 4)
    assert not scope.cancelled_caught
    assert record.keys == ["first", "second"]
    with ctx.clocked(10) as scope:
        await ctx.gather(ctx.step("third", take, 4), ctx.step("fourth", take, 9))
        await ctx.step("fifth", take, 7)
    assert scope.cancelled_caught, "what the step itself takes still counts"
    assert record.keys == ["first", "second", "third", "fourth"]


async def test_a_short_sleep_stays_in_the_pod(autojump_clock: object) -> None:
    record = Record()
    await a_context(record).sleep("rest", 3)
    assert trio.current_time() == pytest.approx(3)
    await a_context(record).sleep("rest", 3)
    assert trio.current_time() == pytest.approx(3), "a replay finds the timer over"
    assert [step.key for step in record.steps] == ["rest"]


async def test_a_long_sleep_suspends_until_the_instant_fixed_at_first(
    autojump_clock: object,
) -> None:
    record, clock = Record(), TrioClock()
    with pytest.raises(Suspended) as first:
        await a_context(record, clock=clock).sleep("cool off", hours=24)
    assert (first.value.waiting_on, first.value.delay_s) == ("sleep", 86_400)
    clock.ahead_s = 86_400 - 60
    with pytest.raises(Suspended) as second:
        await a_context(record, clock=clock).sleep("cool off", hours=24)
    assert second.value.delay_s == pytest.approx(60)
    clock.ahead_s = 86_400 - 2
    await a_context(record, clock=clock).sleep("cool off", hours=24)
    assert trio.current_time() == pytest.approx(2)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12, 10**400])
async def test_a_timer_has_a_length_that_can_be_waited_for(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"timer 'rest': .* s is not from 0 to"):
        await a_context().sleep("rest", seconds)


@pytest.mark.parametrize("hours", ["5", True, timedelta(hours=1)])
async def test_a_timer_has_a_length_in_numbers(hours: Any) -> None:
    with pytest.raises(UsageError, match=r"timer 'rest': hours is .*, not a number"):
        await a_context().sleep("rest", hours=hours)


async def test_a_timer_without_a_length_is_refused(autojump_clock: object) -> None:
    with pytest.raises(UsageError, match="timer 'rest' has no length"):
        await a_context().sleep("rest")
    await a_context().sleep("rest", 0)


async def test_a_timer_needs_an_instant_with_a_time_zone() -> None:
    with pytest.raises(UsageError, match="has no time zone"):
        await a_context().sleep_until("rest", datetime(2026, 1, 1))  # noqa: DTZ001 -- the point


@pytest.mark.parametrize(
    "instant, message",
    [
        (datetime(9999, 1, 1, tzinfo=UTC), "timer 'rest': 9999-01-01T00:00:00+00:00 is more than"),
        ("tomorrow", "timer 'rest': 'tomorrow' is not a datetime"),
    ],
)
async def test_a_timer_ends_at_an_instant_that_can_be_waited_for(
    instant: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        await a_context().sleep_until("rest", instant)


async def test_the_first_of_several_timers_wakes_the_job_on_time(autojump_clock: object) -> None:
    record, clock = Record(), TrioClock()

    async def rings(ctx: Context) -> None:
        await ctx.sleep("soon", hours=1)
        await ctx.step("ring", take, 1)

    async def run(ctx: Context) -> None:
        work = ctx.step("work", take, 100)
        await ctx.gather(ctx.sleep("late", hours=2), rings(ctx), work)

    with pytest.raises(Suspended, match="soon") as wish:
        await run(a_context(record, clock=clock))
    assert trio.current_time() == pytest.approx(100)
    assert wish.value.delay_s == pytest.approx(3_600 - 100), "the work took a part of it"
    clock.ahead_s = 3_600
    with pytest.raises(Suspended, match="late"):
        await run(a_context(record, clock=clock))
    assert record.keys[-1] == "ring"


async def test_sleep_until_an_instant_records_no_step(autojump_clock: object) -> None:
    record = Record()
    ctx = a_context(record)
    instant = await ctx.services.clock.now() + timedelta(seconds=4)
    with pytest.raises(Suspended):
        await ctx.sleep_until("rate", instant, short_s=0)
    await ctx.sleep_until("rate", instant)
    assert trio.current_time() == pytest.approx(4)
    assert record.steps == []
