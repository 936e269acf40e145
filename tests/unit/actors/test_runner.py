"""The one loop of all runners: pauses, hints, work left behind, outages, errors."""

import random
from collections.abc import Iterator

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.actors.backoff import OUTAGE
from cortex.actors.runner import AT_ONCE, ITEMS, SOON_S, TICK_S, Runner, TickBudget, TickResult
from cortex.domain.errors import UnavailableError
from tests.support.eventually import virtually

INTERVAL_S = 8.0
WORK = TickResult(items=3)
NOTHING = TickResult()
MORE = TickResult(items=3, next_s=AT_ONCE)


class Sweep(Runner):
    """Returns or raises one given result per tick, then `NOTHING`; records the times."""

    name = "sweep"
    failure = "not swept"
    jitter = 0.25

    def __init__(self, *results: TickResult | Exception, interval_s: float | None = None) -> None:
        super().__init__(rng=random.Random(1), interval_s=interval_s)
        self.results: Iterator[TickResult | Exception] = iter(results)
        self.at: list[float] = []
        self.budgets: list[TickBudget] = []

    async def tick(self, budget: TickBudget, /) -> TickResult:
        self.at.append(trio.current_time())
        self.budgets.append(budget)
        result = next(self.results, NOTHING)
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.at, self.at[1:], strict=False)]


async def run_for(sweep: Sweep, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await sweep.run()


async def test_without_work_the_pauses_double_from_one_second_to_thirty(
    autojump_clock: MockClock,
) -> None:
    sweep = Sweep()
    await run_for(sweep, 400.0)
    assert sweep.at[0] == 0.0, "the first tick is at once"
    for pause, least_s in zip(sweep.pauses, [1, 2, 4, 8, 16, *[30] * 10], strict=False):
        assert least_s <= pause <= least_s + 0.5
    assert len({round(pause % 1, 6) for pause in sweep.pauses}) > 10, "no two processes agree"


async def test_runner_returns_to_idle_pauses_after_work(
    autojump_clock: MockClock,
) -> None:
    sweep = Sweep(NOTHING, NOTHING, NOTHING, WORK, WORK, NOTHING)
    await run_for(sweep, 30.0)
    assert sweep.pauses[3:5] == pytest.approx([SOON_S, SOON_S])
    assert 1.0 <= sweep.pauses[5] <= 1.5


async def test_tick_sets_the_time_of_the_next_one(
    autojump_clock: MockClock,
) -> None:
    sweep = Sweep(MORE, MORE, *[TickResult(next_s=20.0)] * 50)
    await run_for(sweep, 999.0)
    assert sweep.at[:3] == [0.0, 0.0, 0.0]
    assert all(20.0 <= pause <= 20.1 for pause in sweep.pauses[2:])
    assert len(sweep.pauses) > 40


async def test_a_tick_gets_the_budget_of_its_runner(autojump_clock: MockClock) -> None:
    sweep = Sweep()
    await run_for(sweep, 2.0)
    assert [each.items for each in sweep.budgets] == [ITEMS, ITEMS]
    assert [each.until - at for each, at in zip(sweep.budgets, sweep.at, strict=True)] == [
        pytest.approx(TICK_S)
    ] * 2


async def test_a_fixed_interval_is_kept_less_the_jitter(autojump_clock: MockClock) -> None:
    sweep = Sweep(WORK, interval_s=INTERVAL_S)
    await run_for(sweep, 20 * INTERVAL_S)
    assert len(sweep.pauses) >= 20
    assert all(0.75 * INTERVAL_S <= pause <= INTERVAL_S for pause in sweep.pauses)
    assert len({round(pause, 6) for pause in sweep.pauses}) > 15


async def test_a_runner_that_is_always_behind_can_be_cancelled(autojump_clock: MockClock) -> None:
    sweep = Sweep(*[MORE] * 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep.run)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 0 < len(sweep.at) < 1000


@pytest.mark.parametrize("interval_s", [None, INTERVAL_S])
async def test_a_wake_up_ends_the_pause(
    interval_s: float | None, autojump_clock: MockClock
) -> None:
    sweep = Sweep(interval_s=interval_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(sweep.run)
        await wait_all_tasks_blocked()
        sweep.wake()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sweep.at == [0.0, 0.0]


async def test_a_wake_up_during_a_tick_asks_for_one_more(autojump_clock: MockClock) -> None:
    may_end = trio.Event()

    class Slow(Sweep):
        async def tick(self, budget: TickBudget, /) -> TickResult:
            result = await super().tick(budget)
            if len(self.at) == 1:
                await may_end.wait()
            return result

    sweep = Slow()
    async with trio.open_nursery() as nursery:
        await nursery.start(sweep.run)
        await wait_all_tasks_blocked()
        sweep.wake()
        sweep.wake()
        may_end.set()
        await wait_all_tasks_blocked()
        assert sweep.at == [0.0, 0.0]
        nursery.cancel_scope.cancel()


async def test_several_due_hints_cause_one_timely_tick(
    autojump_clock: MockClock,
) -> None:
    sweep = Sweep(*[TickResult(next_s=30.0)] * 9)
    async with trio.open_nursery() as nursery:
        await nursery.start(sweep.run)
        await virtually(1.0)
        for seconds in (9.0, 5.0, 7.0):
            sweep.due_in(seconds)
        await virtually(10.0)
        nursery.cancel_scope.cancel()
    assert sweep.at == [0.0, 6.0]


async def test_immediate_due_hint_keeps_the_pause_after_work(autojump_clock: MockClock) -> None:
    """A pod that suspends jobs all the time must not ask the database all the time."""
    sweep = Sweep()
    async with trio.open_nursery() as nursery:
        await nursery.start(sweep.run)
        while trio.current_time() < 2.0:
            sweep.due_in(0.0)
            await virtually(0.01)
        nursery.cancel_scope.cancel()
    assert all(pause >= SOON_S - 1e-6 for pause in sweep.pauses)
    assert len(sweep.pauses) >= 6


async def test_an_outage_is_logged_once_and_waited_out(autojump_clock: MockClock) -> None:
    gone = UnavailableError("gone")
    sweep = Sweep(*[gone] * 12, NOTHING, gone)
    with capture_logs() as lines:
        await run_for(sweep, 400.0)
    assert [line["event"] for line in lines] == ["not swept"] * 13
    levels = [line["log_level"] for line in lines]
    assert levels == ["warning"] + ["debug"] * 11 + ["warning"], "an outage after it is another one"
    longest = [OUTAGE.longest_s(nth) for nth in range(1, 13)]
    for pause, longest_s in zip(sweep.pauses, longest, strict=False):
        assert 0 < pause <= longest_s


async def test_an_error_is_logged_and_tried_again_half_a_minute_later_even_if_woken(
    autojump_clock: MockClock,
) -> None:
    sweep = Sweep(ValueError("wrong"), NOTHING)
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(sweep.run)
            await virtually(1.0)
            sweep.wake()
            await virtually(32.0)
            nursery.cancel_scope.cancel()
    assert 30.0 <= sweep.pauses[0] <= 32.0
    ((event, level, runner),) = [
        (line["event"], line["log_level"], line["runner"]) for line in lines
    ]
    assert (event, level, runner) == ("runner failed", "error", "sweep")


async def test_with_a_fixed_interval_an_error_is_a_crash() -> None:
    with pytest.raises(ValueError, match="wrong"):
        await Sweep(ValueError("wrong"), interval_s=INTERVAL_S).run()


@pytest.mark.parametrize("at_once", [True, False])
async def test_runner_is_ready_at_once_or_after_its_first_tick(at_once: bool) -> None:
    may_end, is_ready = trio.Event(), trio.Event()

    class Slow(Sweep):
        is_ready_at_once = at_once

        async def tick(self, _: TickBudget, /) -> TickResult:
            await may_end.wait()
            return NOTHING

    async def start() -> None:
        await nursery.start(Slow().run)
        is_ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await wait_all_tasks_blocked()
        assert is_ready.is_set() is at_once
        may_end.set()
        await is_ready.wait()
        nursery.cancel_scope.cancel()


async def test_a_tick_needs_no_loop() -> None:
    sweep = Sweep(MORE, NOTHING)
    budget = TickBudget()
    assert [await sweep.tick(budget), await sweep.tick(budget)] == [MORE, NOTHING]


def test_partial_or_unlimited_result_means_more_is_due() -> None:
    part = TickResult(next_s=SOON_S, is_partial=True)
    results = [MORE, part, TickResult(next_s=SOON_S), TickResult(next_s=1.0), WORK, NOTHING]
    assert [each.is_more_due for each in results] == [True, True, False, False, False, False]
