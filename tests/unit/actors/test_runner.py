"""The one loop of all sweeps: pauses, wake-ups, work left behind, outages, crashes."""

import random
from collections.abc import Iterator

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.actors.backoff import OUTAGE
from cortex.actors.runner import AT_ONCE, Runner
from cortex.domain.errors import UnavailableError

INTERVAL_S = 8.0


class Sweep(Runner):
    """Returns or raises what it was given, one thing a tick, and notes when."""

    name = "sweep"
    failure = "not swept"
    jitter = 0.25

    def __init__(self, *results: float | Exception | None) -> None:
        super().__init__(rng=random.Random(1), interval_s=INTERVAL_S)
        self.results: Iterator[float | Exception | None] = iter(results)
        self.at: list[float] = []

    async def tick(self) -> float | None:
        self.at.append(trio.current_time())
        result = next(self.results, None)
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.at, self.at[1:], strict=False)]


async def run_for(sweep: Sweep, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await sweep.run()


async def test_it_ticks_at_its_interval_less_the_jitter(autojump_clock: MockClock) -> None:
    sweep = Sweep()
    await run_for(sweep, 20 * INTERVAL_S)
    assert sweep.at[0] == 0.0, "the first tick is at once"
    assert len(sweep.pauses) >= 20
    assert all(0.75 * INTERVAL_S <= pause <= INTERVAL_S for pause in sweep.pauses)
    assert len({round(pause, 6) for pause in sweep.pauses}) > 15


async def test_a_tick_says_when_the_next_one_is_due(autojump_clock: MockClock) -> None:
    sweep = Sweep(AT_ONCE, AT_ONCE, 100.0)
    await run_for(sweep, 99.0)
    assert sweep.at[:3] == [0.0, 0.0, 0.0]
    assert 75.0 <= sweep.at[3] <= 99.0


async def test_a_sweep_that_is_always_behind_can_be_cancelled(autojump_clock: MockClock) -> None:
    sweep = Sweep(*[AT_ONCE] * 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep.run)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 0 < len(sweep.at) < 1000


async def test_a_wake_up_ends_the_pause(autojump_clock: MockClock) -> None:
    sweep = Sweep()
    async with trio.open_nursery() as nursery:
        await nursery.start(sweep.run)
        await wait_all_tasks_blocked()
        sweep.wake()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sweep.at == [0.0, 0.0]


async def test_an_outage_is_logged_once_and_waited_out(autojump_clock: MockClock) -> None:
    gone = UnavailableError("gone")
    sweep = Sweep(*[gone] * 12, None, gone)
    with capture_logs() as lines:
        await run_for(sweep, 400.0)
    assert [line["event"] for line in lines] == ["not swept"] * 13
    levels = [line["log_level"] for line in lines]
    assert levels == ["warning"] + ["debug"] * 11 + ["warning"], "an outage after it is another one"
    longest = [OUTAGE.longest_s(nth) for nth in range(1, 13)]
    for pause, longest_s in zip(sweep.pauses, longest, strict=False):
        assert 0.75 * INTERVAL_S < pause <= INTERVAL_S + longest_s


async def test_what_is_no_outage_is_a_crash() -> None:
    with pytest.raises(ValueError, match="wrong"):
        await Sweep(ValueError("wrong")).run()


@pytest.mark.parametrize("at_once", [True, False])
async def test_it_is_ready_at_once_or_after_its_first_tick(at_once: bool) -> None:
    may_end, is_ready = trio.Event(), trio.Event()

    class Slow(Sweep):
        is_ready_at_once = at_once

        async def tick(self) -> None:
            await may_end.wait()

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
    sweep = Sweep(AT_ONCE, None)
    assert [await sweep.tick(), await sweep.tick()] == [AT_ONCE, None]
