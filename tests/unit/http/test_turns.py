"""Work for clients begins when jobs are idle, piece by piece, and in bounded time."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from cortex.http.framework.turns import PATIENCE_S, SLICE_S, Kind, Turns

CLIENTS = 50
HOPS = 20


@pytest.fixture
def still_clock() -> MockClock:
    """A clock that only tests move: nothing is late, whatever the machine does."""
    return MockClock()


async def test_job_continues_before_any_of_many_requests_begins(still_clock: MockClock) -> None:
    turns = Turns()
    begun: list[int] = []

    async def client(number: int) -> None:
        await turns(Kind.REQUEST)
        begun.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(client, number)
        for _ in range(HOPS):
            await trio.lowlevel.checkpoint()
        assert begun == []
    assert len(begun) == CLIENTS


async def test_turn_begins_when_the_previous_one_first_waits(
    still_clock: MockClock,
) -> None:
    turns = Turns()
    at_work = 0

    async def client() -> None:
        nonlocal at_work
        await turns(Kind.REQUEST)
        assert at_work == 0
        at_work += 1
        for _ in range(HOPS):
            await trio.lowlevel.checkpoint()
        at_work -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(CLIENTS):
            nursery.start_soon(client)


async def test_busy_loop_does_not_keep_requests_out(still_clock: MockClock) -> None:
    turns = Turns()
    rounds = 0
    async with trio.open_nursery() as nursery:

        async def busy() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                still_clock.jump(PATIENCE_S / HOPS)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(busy)
        await trio.lowlevel.checkpoint()
        before = rounds
        await turns(Kind.REQUEST)
        nursery.cancel_scope.cancel()
    assert HOPS / 2 < rounds - before < 3 * HOPS


async def test_clients_rest_for_as_long_as_their_work_took(autojump_clock: MockClock) -> None:
    turns = Turns()
    at: list[float] = []

    async def client() -> None:
        await turns(Kind.REQUEST)
        at.append(trio.current_time())
        autojump_clock.jump(2 * SLICE_S)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client)
    assert [later - earlier for earlier, later in pairwise(at)] == pytest.approx([4 * SLICE_S] * 2)


async def test_a_lone_request_does_not_wait(autojump_clock: MockClock) -> None:
    turns = Turns()
    for _ in range(3):
        began = trio.current_time()
        await turns(Kind.REQUEST)
        assert trio.current_time() == began
        autojump_clock.jump(1.0)


async def test_a_probe_does_not_wait_behind_others(still_clock: MockClock) -> None:
    turns = Turns()
    begun: list[Kind] = []

    async def client(kind: Kind) -> None:
        await turns(kind)
        begun.append(kind)

    async with trio.open_nursery() as nursery:
        for _ in range(CLIENTS):
            nursery.start_soon(client, Kind.REQUEST)
            nursery.start_soon(client, Kind.STREAM)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(client, Kind.PROBE)
    assert begun.index(Kind.PROBE) < 2 * len(Kind)
