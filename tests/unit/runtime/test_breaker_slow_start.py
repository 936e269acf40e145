"""The ramp: few calls on their way before the first answer, all of them soon after it."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.runtime.calls.breaker_handle import (
    COLD_AFTER_S,
    GROWTH,
    START,
    Permit,
    SlowStart,
)

JOBS = 300


class Callers:
    """Tasks that ask for a permit, and their outcomes in order."""

    def __init__(self, ramp: SlowStart, nursery: trio.Nursery) -> None:
        self.ramp = ramp
        self.nursery = nursery
        self.inside: list[tuple[int, Permit]] = []
        self.turned_away: list[int] = []

    def ask(self, count: int) -> list[trio.CancelScope]:
        scopes = [trio.CancelScope() for _ in range(count)]
        for number, scope in enumerate(scopes):
            self.nursery.start_soon(self._ask, number, scope)
        return scopes

    async def _ask(self, number: int, scope: trio.CancelScope) -> None:
        with scope:
            place = await self.ramp.enter()
            if place is None:
                self.turned_away.append(number)
            else:
                self.inside.append((number, place))

    @property
    def places(self) -> list[Permit]:
        return [place for _, place in self.inside]


async def test_each_round_of_answers_lets_four_times_as_many_go(nursery: trio.Nursery) -> None:
    callers = Callers(SlowStart(), nursery)
    callers.ask(JOBS)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == START
    answered = 0
    rounds = [START]
    while len(callers.inside) < JOBS:
        for place in callers.places[answered:]:
            callers.ramp.answer(place)
            answered += 1
        await wait_all_tasks_blocked()
        rounds.append(len(callers.inside) - answered)
    assert rounds == [4, 16, 64, 216]  # 300 streams wait for four first answers, not for 300


async def test_calls_are_admitted_in_order(nursery: trio.Nursery) -> None:
    ramp = SlowStart()
    order: list[int] = []

    async def ask(number: int) -> None:
        place = await ramp.enter()
        order.append(number)
        await wait_all_tasks_blocked()
        if place is not None:
            ramp.leave(place)

    for number in range(20):
        nursery.start_soon(ask, number)
        await wait_all_tasks_blocked()
    assert order == list(range(20))


async def test_an_end_without_an_answer_lets_one_go_but_no_more(nursery: trio.Nursery) -> None:
    callers = Callers(SlowStart(), nursery)
    callers.ask(20)
    await wait_all_tasks_blocked()
    callers.ramp.leave(callers.places[0])
    callers.ramp.leave(callers.places[0])  # reported twice
    callers.ramp.answer(callers.places[0])  # too late
    await wait_all_tasks_blocked()
    assert len(callers.inside) == START + 1


async def test_waiting_calls_are_turned_away_at_once(nursery: trio.Nursery) -> None:
    callers = Callers(SlowStart(), nursery)
    callers.ask(20)
    await wait_all_tasks_blocked()
    callers.ramp.turn_away()
    await wait_all_tasks_blocked()
    assert len(callers.turned_away) == 20 - START
    for place in callers.places:
        callers.ramp.leave(place)
    callers.ask(START)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == 2 * START


async def test_a_failure_begins_with_a_few_again(nursery: trio.Nursery) -> None:
    callers = Callers(SlowStart(), nursery)
    callers.ask(START)
    await wait_all_tasks_blocked()
    for place in callers.places:
        callers.ramp.answer(place)
    callers.ramp.restart()
    callers.ask(20)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == 2 * START


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_cancelled_wait_leaves_no_place_taken(
    nursery: trio.Nursery,
    is_granted: bool,
) -> None:
    callers = Callers(SlowStart(), nursery)
    callers.ask(START)
    await wait_all_tasks_blocked()
    scopes = callers.ask(5)
    callers.ask(1)
    await wait_all_tasks_blocked()
    if is_granted:  # in the same instant
        callers.ramp.leave(callers.places[0])
    for scope in scopes:
        scope.cancel()
    await wait_all_tasks_blocked()
    assert len(callers.inside) == START + is_granted
    for place in callers.places:
        callers.ramp.leave(place)
    before = len(callers.inside)
    callers.ask(20)
    await wait_all_tasks_blocked()
    assert len(callers.inside) - before == START


async def test_calls_cancelled_together_release_their_permits(nursery: trio.Nursery) -> None:
    ramp = SlowStart()

    async def call() -> None:
        place = await ramp.enter()
        assert place is not None
        try:
            await trio.sleep_forever()
        finally:
            ramp.leave(place)  # lets one in that was cancelled in the same instant

    async with trio.open_nursery() as together:
        for _ in range(20):
            together.start_soon(call)
        await wait_all_tasks_blocked()
        together.cancel_scope.cancel()
    callers = Callers(ramp, nursery)
    callers.ask(20)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == START


async def test_idle_slow_start_begins_again_with_few_calls(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
) -> None:
    ramp = SlowStart()
    while not ramp._limit.is_unlimited:
        place = await ramp.enter()
        assert place is not None
        ramp.answer(place)
    callers = Callers(ramp, nursery)
    callers.ask(JOBS)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == JOBS  # nothing waits any more
    for place in callers.places:
        ramp.leave(place)
    assert not ramp.is_idle
    autojump_clock.jump(COLD_AFTER_S + 1)
    assert ramp.is_idle
    callers.ask(JOBS)
    await wait_all_tasks_blocked()
    assert len(callers.inside) == JOBS + START
    assert GROWTH == 3
