"""The simulated clock, turns, and asyncio on both: small, without a database."""

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from chaos.sim.clock import HOST, Clock, seed_trio
from chaos.sim.island import Island, Killed
from chaos.sim.network import FAIR, Fate, Network, Weather
from chaos.sim.pace import BUSY_MAX_S, EXACT_S, IDLE_MAX_S, LEAVING_MAX_S, Pace
from chaos.sim.wire import Wire

DAY_S = 86_400.0


@attrs.define(eq=False)
class Host:
    is_stopped: bool = False


@pytest.fixture(autouse=True)
def trio_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the settings of `seed_trio`, so that other tests run in this process."""
    run: Any = trio._core._run
    for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING"):
        monkeypatch.setattr(run, name, getattr(run, name))


# --- the clock and the turns


def test_a_day_of_sleep_takes_no_time_and_ends_at_its_end() -> None:
    async def main() -> float:
        await trio.sleep(DAY_S)
        return trio.current_time()

    assert trio.run(main, clock=Clock()) == DAY_S


def test_seed_decides_the_order_of_tasks() -> None:
    def order(seed: int) -> list[int]:
        seen: list[int] = []

        async def go(number: int) -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
                seen.append(number)

        async def main() -> None:
            seed_trio(seed)
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(go, number)

        trio.run(main, clock=Clock())
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_tasks_of_a_stopped_host_wait_until_it_resumes() -> None:
    woken: list[float] = []

    async def sleeper(host: Host) -> None:
        HOST.set(host)
        await trio.lowlevel.checkpoint()
        await trio.sleep(5)
        woken.append(trio.current_time())

    async def main() -> None:
        turns = seed_trio(1)
        host = Host()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, host)
            await trio.sleep(1)
            host.is_stopped = True
            await trio.sleep(99)
            assert not woken
            host.is_stopped = False
            turns.let_go()

    trio.run(main, clock=Clock())
    assert woken == [100.0]


def test_deadlock_calls_on_silence() -> None:
    clock = Clock()

    async def main() -> bool:
        with trio.CancelScope() as scope:
            clock.on_silence = scope.cancel
            await trio.sleep_forever()
        return scope.cancelled_caught

    assert trio.run(main, clock=clock)


# --- asyncio on the clock


@asynccontextmanager
async def _island(clock: Clock) -> AsyncIterator[Island]:
    island = Island(clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(island.run)
        try:
            yield island
        finally:
            island.end()


def test_timers_of_asyncio_are_of_the_simulated_clock() -> None:
    clock = Clock()

    async def work() -> str:
        try:
            async with asyncio.timeout(3600):
                await asyncio.sleep(DAY_S)
        except TimeoutError:
            return f"given up at {clock.now:g}"
        return "slept"

    async def main() -> str:
        async with _island(clock) as island:
            return await island.run_aio_coroutine(work())

    assert trio.run(main, clock=clock) == "given up at 3600"


def test_wire_calls_take_no_simulated_time_and_run_alone() -> None:
    clock, wire = Clock(), Wire()
    seen: list[tuple[str, float]] = []

    async def talk(name: str) -> None:
        ours, theirs = socket.socketpair()
        threading.Thread(target=_echo, args=(theirs,)).start()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        for _ in range(2):
            writer.write(b"x")
            await reader.readexactly(1)
            seen.append((name, clock.now))
        writer.close()

    async def work(name: str) -> None:
        await asyncio.sleep(1)
        wire(partial(talk, name))

    async def main() -> None:
        async with _island(clock) as island, trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(island.run_aio_coroutine, work(name))
            nursery.start_soon(trio.sleep, 1.001)

    with closing(wire):
        wire(partial(talk, "outside"))
        trio.run(main, clock=clock)
    first, second = dict.fromkeys(name for name, _ in seen[2:])
    assert {first, second} == {"one", "two"}
    assert seen == [("outside", 0.0)] * 2 + [(first, 1.0)] * 2 + [(second, 1.0)] * 2


def _echo(peer: socket.socket) -> None:
    with peer:
        while data := peer.recv(1):
            peer.sendall(data)


def test_calls_on_a_dead_island_are_killed_despite_shields() -> None:
    clock = Clock()

    async def main() -> float:
        async with _island(clock) as island:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    with pytest.raises(Killed), trio.CancelScope(shield=True):
                        await island.run_aio_coroutine(asyncio.sleep(DAY_S))

                nursery.start_soon(wait)
                await trio.sleep(1)
                island.end()
            with pytest.raises(Killed):
                await island.run_aio_coroutine(asyncio.sleep(0))
        return trio.current_time()

    assert trio.run(main, clock=clock) == 1.0


# --- the network and the pace


def test_statement_fates_follow_the_odds_of_the_weather() -> None:
    network = Network(random.Random(1), Weather(lost=0.1, reset_after=0.3))
    drawn = [network.fate() for _ in range(10_000)]
    assert 900 < drawn.count(Fate.LOST) < 1100
    assert 2800 < drawn.count(Fate.RESET_AFTER) < 3200
    assert drawn.count(Fate.UNANSWERED) == 0
    network.weather = FAIR
    assert {network.fate() for _ in range(100)} == {Fate.ARRIVES}
    network.weather = Weather(is_cut=True)
    assert network.fate() is Fate.LOST


@pytest.mark.parametrize("is_busy, longest_s", [(False, IDLE_MAX_S), (True, BUSY_MAX_S)])
def test_clock_strides_only_while_idle(is_busy: bool, longest_s: float) -> None:
    clock = Clock()
    travelling: list[str] = []
    leaving: list[str] = []
    pace = Pace(
        clock,
        query=lambda _: [{"due_s": None, "is_busy": is_busy}],
        is_under_way=lambda: bool(travelling),
        is_leaving=lambda: bool(leaving),
    )
    clock.now = EXACT_S / 2
    assert pace.jump(clock.now + 0.1) == clock.now + 0.1
    clock.now = DAY_S
    assert pace.jump(DAY_S + 0.1) == DAY_S + longest_s
    assert pace.jump(DAY_S + 1000) == DAY_S + 1000
    leaving.append("a pod")
    assert pace.jump(DAY_S + 0.1) == DAY_S + LEAVING_MAX_S
    travelling.append("a request")
    assert pace.jump(DAY_S + 0.1) == DAY_S + 0.1
    travelling.clear()
    pace.moved()
    assert pace.jump(DAY_S + 0.1) == DAY_S + 0.1


def test_a_stride_ends_at_an_appointment_and_when_something_is_due() -> None:
    clock = Clock()
    pace = Pace(
        clock,
        query=lambda _: [{"due_s": 7.0, "is_busy": False}],
        is_under_way=lambda: False,
        is_leaving=lambda: False,
    )
    clock.now = DAY_S
    assert pace.jump(DAY_S + 0.1) == DAY_S + 7.0
    pace.appoint(DAY_S + 3.0)
    assert pace.jump(DAY_S + 0.1) == DAY_S + 3.0
    pace.asleep_until_s = DAY_S + 50
    assert pace.jump(DAY_S + 0.1) == DAY_S + 50
