"""The first of several waits, in memory: which one wins, what becomes of the others, and kills."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, assert_type

import attrs
import pytest
import trio

from cortex import Context, DeniedError, TimedOutError, job, tool
from cortex.domain.errors import ApprovalExpiredError, ChildFailedError, UsageError
from cortex.durable.first_of import OUTCOMES, Winner
from cortex.testing import Cortex
from tests.support.apps.shows_app import linger


@attrs.frozen
class Payment:
    euros: int


@job(name="pays-or-not")
async def pays_or_not(ctx: Context) -> dict[str, Any]:
    winner = await ctx.first(ctx.receive("payment", Payment), ctx.sleep("too late", days=3))
    assert_type(winner, Winner[Payment | None])
    after = await ctx.receive("payment", Payment, timeout=60, default=None)
    return {
        "index": winner.index,
        "name": winner.name,
        "value": None if winner.value is None else winner.value.euros,
        "left": None if after is None else after.euros,
    }


async def test_signal_wins_over_a_later_timer(harness: Cortex) -> None:
    harness.signal("payment", {"euros": 5}, after_s=7_200)
    run = await harness.run(pays_or_not)
    assert run.result == {"index": 0, "name": "payment", "value": 5, "left": None}
    run.replays()


async def test_timer_wins_and_leaves_the_signal_in_its_queue(harness: Cortex) -> None:
    late_s = 3 * 86_400 + 30
    harness.signal("payment", {"euros": 5}, after_s=late_s)
    run = await harness.run(pays_or_not)
    assert run.result == {"index": 1, "name": "too late", "value": None, "left": 5}
    run.replays()


async def test_first_argument_wins_if_all_are_true_at_once(harness: Cortex) -> None:
    harness.signal("one")
    harness.signal("two", "second")

    @job(name="both")
    async def both(ctx: Context) -> list[Any]:
        winner = await ctx.first(ctx.receive("one"), ctx.receive("two"), ctx.sleep("now", 0))
        return [winner.name, await ctx.receive("two")]

    run = await harness.run(both)
    assert run.result == ["one", "second"]
    run.replays()


@pytest.mark.parametrize("after_s", [0.0, 7_200.0, 3 * 86_400 + 30])
async def test_winner_is_the_same_wherever_the_job_is_killed(
    harness: Cortex, after_s: float
) -> None:
    harness.signal("payment", {"euros": 5}, after_s=after_s)
    harness.signal("payment", {"euros": 6}, after_s=after_s + 1)
    await harness.crash_everywhere(pays_or_not)


# --- people


@job(name="asks-or-waits")
async def asks_or_waits(ctx: Context) -> Any:
    try:
        winner = await ctx.first(ctx.sleep("too late", days=3), ctx.approve("buy"))
    except DeniedError as error:
        return f"denied by {error.by}"
    again = await ctx.first(ctx.approve("buy"), ctx.sleep("a day", days=1))
    return [winner.name, again.name]


async def test_people_win_over_a_later_timer(harness: Cortex) -> None:
    harness.approve("buy")
    run = await harness.run(asks_or_waits)
    assert run.result[0] == "buy"
    run.replays()
    await harness.crash_everywhere(asks_or_waits)


async def test_timer_withdraws_the_request_to_people(harness: Cortex) -> None:
    run = await harness.run(asks_or_waits)
    assert run.result == ["too late", "a day"]
    run.replays()
    await harness.crash_everywhere(asks_or_waits)


async def test_denial_is_the_end_of_the_race(harness: Cortex) -> None:
    harness.deny("buy", by="ann")
    run = await harness.run(asks_or_waits)
    assert run.result == "denied by ann"
    assert "first" in run.steps
    run.replays()
    await harness.crash_everywhere(asks_or_waits)


async def test_timeout_of_a_signal_is_the_end_of_the_race(harness: Cortex) -> None:
    @job(name="times-out")
    async def times_out(ctx: Context) -> str:
        try:
            await ctx.first(ctx.receive("a", timeout=60), ctx.sleep("later", hours=1))
        except TimedOutError:
            return await ctx.step("after", str, "timed out")
        return "no"

    run = await harness.run(times_out)
    assert run.result == "timed out"
    run.replays()
    await harness.crash_everywhere(times_out)


# --- steps


async def test_timer_ends_a_step_that_runs_longer(harness: Cortex) -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await linger(600)
        except trio.Cancelled:
            ended.append("cancelled")
            raise

    @job(name="limits")
    async def limits(ctx: Context) -> list[Any]:
        winner = await ctx.first(ctx.step("slow", slow), ctx.sleep("limit", 30))
        return [winner.name, await ctx.step("after", int, 3)]

    run = await harness.run(limits)
    assert (run.result, ended) == (["limit", 3], ["cancelled"])
    run.replays()


async def test_signal_ends_a_step_that_runs_longer(harness: Cortex) -> None:
    harness.signal("stop", after_s=20)

    @job(name="stops")
    async def stops(ctx: Context) -> str:
        winner = await ctx.first(ctx.step("slow", linger, 500), ctx.receive("stop"))
        return winner.name

    run = await harness.run(stops)
    assert run.result == "stop"
    assert run.attempts == 1
    run.replays()
    await harness.crash_everywhere(stops)


async def test_quick_step_wins(harness: Cortex) -> None:
    @job(name="quick")
    async def quick(ctx: Context) -> list[Any]:
        winner = await ctx.first(
            ctx.step("slow", linger, 50), ctx.step("quick", int, 3), ctx.receive("never")
        )
        return [winner.index, winner.value]

    run = await harness.run(quick)
    assert run.result == [1, 3]
    run.replays()
    await harness.crash_everywhere(quick)


async def test_error_of_a_step_is_raised(harness: Cortex) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    @job(name="fails")
    async def fails_first(ctx: Context) -> str:
        try:
            await ctx.first(ctx.step("fails", fails), ctx.receive("never"))
        except ValueError as error:
            return str(error)
        return "no"

    assert (await harness.run(fails_first)).result == "broken"


# --- beside other code


async def test_branches_wait_together(harness: Cortex) -> None:
    harness.signal("right", 2, after_s=100)
    harness.approve("ask")

    @job(name="branches")
    async def branches(ctx: Context) -> list[str]:
        left, right = await ctx.gather(
            ctx.first(ctx.receive("left"), ctx.sleep("left late", 50), name="first left"),
            ctx.first(ctx.receive("right"), ctx.sleep("right late", 500), name="first right"),
        )
        asked = await ctx.first(ctx.receive("left"), ctx.approve("ask"))
        return [left.name, right.name, asked.name]

    run = await harness.run(branches)
    assert run.result == ["left late", "right", "ask"]
    run.replays()
    await harness.crash_everywhere(branches)


async def test_timer_ends_a_wait_beside_a_question_to_people(harness: Cortex) -> None:
    seen: list[str] = []

    @job(name="beside")
    async def beside(ctx: Context) -> list[str]:
        async def left() -> str:
            winner = await ctx.first(ctx.receive("left"), ctx.sleep("left late", 50))
            await ctx.step("seen", seen.append, winner.name)
            harness.approve("ask")
            return winner.name

        async def right() -> str:
            return "yes" if (await ctx.approve("ask")).is_approved else "no"

        return list(await ctx.gather(left(), right()))

    run = await harness.run(beside)
    assert (run.result, seen) == (["left late", "yes"], ["left late"])
    run.replays()


async def own() -> None:
    """Code of a job that is no call of its context."""


@tool(effect=True)
def pay(euros: int) -> str:
    """Pay."""
    return str(euros)


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda _: [], "ctx.first has 0 things to wait for, outside 1 to 100"),
        (lambda ctx: [ctx.sleep("a", 1), own()], "argument 2 is coroutine, no call of ctx"),
        (lambda ctx: [ctx.sleep("a", 1), 3], "argument 2 is int, no call of ctx"),
        (lambda ctx: 2 * [ctx.sleep("a", 1)], "ctx.first has the same call twice"),
        (
            lambda ctx: [ctx.tool("pay", pay, {"euros": 3}), ctx.sleep("a", 1)],
            "ctx.first: 'pay' cannot be withdrawn once it has begun",
        ),
        (
            lambda ctx: [ctx.effect("own", abs, 1), ctx.sleep("a", 1)],
            "ctx.first: 'own' cannot be withdrawn once it has begun",
        ),
        (
            lambda ctx: [ctx.first(ctx.sleep("a", 1)), ctx.sleep("b", 1)],
            "ctx.first: 'first' cannot be withdrawn once it has begun",
        ),
    ],
)
async def test_calls_that_cannot_be_withdrawn_are_refused(
    harness: Cortex, made: Callable[[Context], list[Awaitable[Any]]], message: str
) -> None:
    @job(name="refused")
    async def refused(ctx: Context) -> None:
        await ctx.first(*made(ctx))

    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        _ = (await harness.run(refused)).result
    assert "\n" not in str(caught.value)


async def test_forgotten_first_is_reported(harness: Cortex) -> None:
    @job(name="forgets")
    async def forgets(ctx: Context) -> None:
        _ = ctx.first(ctx.sleep("a", 1))

    with pytest.raises(UsageError, match="without awaiting 'a', 'first'"):
        _ = (await harness.run(forgets)).result


def test_expired_requests_are_outcomes() -> None:
    assert ApprovalExpiredError in OUTCOMES


# --- children

lingered: list[float] = []


@job(name="child-of-first")
async def child(ctx: Context, seconds: float) -> float:
    await ctx.sleep("work", seconds)
    await ctx.step("note", lingered.append, seconds)
    return seconds


@pytest.mark.parametrize(
    "seconds, expected", [(100.0, ["child-of-first", 100.0]), (900.0, ["late", None])]
)
async def test_child_and_timer_race(harness: Cortex, seconds: float, expected: list[Any]) -> None:
    @job(name="calls-first")
    async def calls_first(ctx: Context) -> list[Any]:
        winner = await ctx.first(ctx.call(child, seconds=seconds), ctx.sleep("late", 500))
        return [winner.name, winner.value, await ctx.step("after", int, 3)]

    lingered.clear()
    run = await harness.run(calls_first)
    assert run.result == [*expected, 3]
    assert lingered == [each for each in [seconds] if each < 500]
    run.replays()


async def test_result_of_a_child_and_a_signal_race(harness: Cortex) -> None:
    harness.signal("stop", after_s=50)

    @job(name="spawns-first")
    async def spawns_first(ctx: Context) -> list[Any]:
        quick = await ctx.spawn(child, seconds=10)
        slow = await ctx.spawn(child, seconds=1_000, name="slow")
        kept = await ctx.spawn(child, seconds=1_000, name="kept", detached=True)
        one = await ctx.first(quick.result(), slow.result())
        two = await ctx.first(ctx.receive("stop"), kept.result())
        with pytest.raises(ChildFailedError, match="cancelled"):
            await slow.result()
        return [one.index, one.value, two.name]

    lingered.clear()
    run = await harness.run(spawns_first)
    assert run.result == [0, 10.0, "stop"]
    run.replays()
    await harness.crash_everywhere(spawns_first)
