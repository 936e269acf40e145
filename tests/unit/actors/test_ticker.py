"""Pauses end in time, wake-ups are kept, coalesced and never lost."""

import math
import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.actors.ticker import Pacer


@pytest.mark.parametrize("seed", range(10))
async def test_a_pause_ends_within_the_jitter_below_its_limit(
    seed: int, autojump_clock: MockClock
) -> None:
    pacer = Pacer(rng=random.Random(seed), jitter=0.25)
    for _ in range(20):
        began = trio.current_time()
        assert await pacer.wait(8.0) is False
        assert 6.0 <= trio.current_time() - began <= 8.0


async def test_pauses_differ(autojump_clock: MockClock) -> None:
    pacer = Pacer(rng=random.Random(1), jitter=0.5)
    lengths = set()
    for _ in range(10):
        began = trio.current_time()
        await pacer.wait(8.0)
        lengths.add(round(trio.current_time() - began, 6))
    assert len(lengths) == 10


async def test_a_wake_up_ends_the_pause_at_once(autojump_clock: MockClock) -> None:
    pacer = Pacer(rng=random.Random(1))
    woken: list[bool] = []

    async def loop() -> None:
        woken.append(await pacer.wait(math.inf))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop)
        await wait_all_tasks_blocked()
        pacer.wake()
    assert woken == [True]
    assert trio.current_time() == 0.0


async def test_wake_ups_while_at_work_are_one_at_the_next_pause(autojump_clock: MockClock) -> None:
    pacer = Pacer(rng=random.Random(1))
    pacer.wake()
    pacer.wake()
    assert await pacer.wait(5.0) is True
    assert trio.current_time() == 0.0
    assert await pacer.wait(5.0) is False
    pacer.wake()
    assert await pacer.wait(0.0) is True


async def test_a_cancelled_pause_keeps_its_wake_up(autojump_clock: MockClock) -> None:
    pacer = Pacer(rng=random.Random(1))
    pacer.wake()
    with trio.CancelScope() as scope:
        scope.cancel()
        await pacer.wait(5.0)
    assert scope.cancelled_caught
    assert await pacer.wait(5.0) is True


@pytest.mark.parametrize("jitter", [-0.1, 1.1, math.nan])
def test_silly_jitter_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        Pacer(rng=random.Random(1), jitter=jitter)
