"""The asyncio loop inside trio: a call begins at once, and a reply takes two turns of trio."""

import _asyncio
import asyncio
import signal
import socket
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import pytest
import structlog
import trio
import trio_asyncio

from cortex.postgres.asyncio_names import POLICY, WATCHER, restore
from cortex.postgres.bridge import leave_island
from cortex.postgres.island import CLOSE_S, AsyncioIsland, open_island
from tests.support.eventually import WITHIN_S


@types.coroutine
def next_turn() -> Generator[None, None, None]:
    """Let the loop's other callbacks run."""
    yield


async def by_timer() -> None:
    """Wait for a timer of the loop."""
    loop = asyncio.get_running_loop()
    fired = loop.create_future()
    loop.call_later(0.001, fired.set_result, None)
    await fired


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture
async def island() -> AsyncIterator[AsyncioIsland]:
    async with open_island() as opened:
        yield opened


@pytest.mark.timeout(30)
async def test_a_cancellation_while_it_opens_ends_it() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_island():
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_a_call_runs_its_first_part_in_the_turn_of_its_caller(island: AsyncioIsland) -> None:
    order: list[str] = []

    async def call() -> str:
        order.append("sent")
        await next_turn()
        return "reply"

    async def other() -> None:
        order.append("another task")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        assert await island.run_aio_coroutine(call()) == "reply"
    assert order == ["sent", "another task"]


async def test_island_is_the_running_loop_only_during_its_turns(
    island: AsyncioIsland,
) -> None:
    """Trio-asyncio replaces what asyncio itself offers to ask; tasks of Python 3.14 ask this."""

    async def call() -> bool:
        return _asyncio._get_running_loop() is asyncio.get_running_loop()

    assert await island.run_aio_coroutine(call())
    assert _asyncio._get_running_loop() is None


def test_names_that_trio_asyncio_uses_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = getattr(asyncio.events, POLICY)
    monkeypatch.delattr(asyncio.events, POLICY)
    monkeypatch.setattr(asyncio.events, f"_{POLICY}", policy, raising=False)
    monkeypatch.delattr(asyncio, WATCHER)
    restore()
    assert getattr(asyncio.events, POLICY) is policy
    assert isinstance(getattr(asyncio, WATCHER), type)


async def test_a_reply_passes_from_its_socket_to_the_caller_in_two_turns(
    island: AsyncioIsland,
) -> None:
    ours, theirs = socket.socketpair()
    turns = 0

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 -- trio's name
            nonlocal turns
            turns += 1

    async def receive() -> bytes:
        reader, writer = await asyncio.open_connection(sock=ours)
        received = await reader.readexactly(1)
        writer.close()
        return received

    received: list[bytes] = []

    async def call() -> None:
        received.append(await island.run_aio_coroutine(receive()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        instrument = Turns()
        trio.lowlevel.add_instrument(instrument)
        theirs.send(b"x")
        while not received:  # noqa: ASYNC110 -- it counts these turns
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(instrument)
    theirs.close()
    # The driver wakes and runs all of asyncio's turns; then the caller has its result.
    assert turns <= 4


async def test_a_call_from_a_task_that_has_left_the_island_finds_its_loop(
    island: AsyncioIsland,
) -> None:
    async def call() -> asyncio.AbstractEventLoop:
        await by_timer()
        return asyncio.get_running_loop()

    leave_island()
    assert await island.run_aio_coroutine(call()) is island.loop
    assert trio_asyncio.current_loop.get() is None


async def test_cancelling_a_call_cancels_its_coroutine_and_waits_for_its_end(
    island: AsyncioIsland,
) -> None:
    ended = False

    async def call() -> None:
        nonlocal ended
        try:
            await forever()
        finally:
            await by_timer()  # noqa: ASYNC102 -- it tries this
            ended = True

    with trio.move_on_after(0.001) as scope:
        await island.run_aio_coroutine(call())
    assert scope.cancelled_caught
    assert ended


async def test_trio_code_wakes_the_loop_for_callbacks_and_earlier_timers(
    island: AsyncioIsland,
) -> None:
    await trio.testing.wait_all_tasks_blocked()
    called, fired = trio.Event(), trio.Event()
    island.loop.call_soon(called.set)
    with trio.fail_after(WITHIN_S):
        await called.wait()
    await trio.testing.wait_all_tasks_blocked()
    island.loop.call_later(0.001, fired.set)
    with trio.fail_after(WITHIN_S):
        await fired.wait()


async def test_callbacks_that_follow_each_other_forever_starve_no_trio_task(
    island: AsyncioIsland,
) -> None:
    is_over = False

    async def spin() -> None:
        while not is_over:
            await next_turn()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(island.run_aio_coroutine, spin())
        with trio.fail_after(WITHIN_S):
            for _ in range(3):
                await trio.lowlevel.checkpoint()
        is_over = True


async def test_an_error_of_a_callback_ends_no_call(island: AsyncioIsland) -> None:
    contexts: list[dict[str, Any]] = []
    island.loop.set_exception_handler(lambda _loop, context: contexts.append(context))

    async def call() -> str:
        island.loop.call_soon(lambda: 1 / 0)
        await by_timer()
        return "done"

    assert await island.run_aio_coroutine(call()) == "done"
    assert isinstance(contexts[0]["exception"], ZeroDivisionError)


def leave() -> None:
    raise SystemExit(3)


async def by_callback(island: AsyncioIsland) -> None:
    island.loop.call_soon(leave)


async def by_task(island: AsyncioIsland) -> None:
    async def task() -> None:
        await next_turn()
        leave()

    assert island.loop.begin(task()) is not None


async def from_a_thread(island: AsyncioIsland) -> None:
    await trio.to_thread.run_sync(island.loop.call_soon_threadsafe, leave)


@pytest.mark.parametrize("way", [by_callback, by_task, from_a_thread])
async def test_an_exit_in_the_loop_ends_the_block_and_no_call(
    way: Callable[[AsyncioIsland], Awaitable[None]],
) -> None:
    replies: list[str] = []

    async def slow() -> str:
        await by_timer()
        return "written"

    async def run() -> None:
        async with open_island() as island:
            try:
                await way(island)
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):  # as what a pod must still record
                    replies.append(await island.run_aio_coroutine(slow()))

    with (
        trio.fail_after(WITHIN_S),
        structlog.testing.capture_logs() as log_lines,
        pytest.raises(RuntimeError, match=r"by SystemExit\(3\)") as raised,
    ):
        await run()
    assert isinstance(raised.value.__cause__, SystemExit)
    assert replies == ["written"]
    (line,) = [each for each in log_lines if each["log_level"] == "error"]
    assert (line["event"], line["error"]) == ("asyncio code ends the process", "SystemExit(3)")
    assert "test_island.py:" in line["at"]


def test_interrupt_reaches_the_main_task_and_ends_no_call() -> None:
    async def interrupted_call() -> str:
        signal.raise_signal(signal.SIGINT)
        await by_timer()
        signal.raise_signal(signal.SIGINT)
        await by_timer()
        return "done"

    async def main() -> str:
        replies: list[str] = []

        async def call(opened: AsyncioIsland) -> None:
            replies.append(await opened.run_aio_coroutine(interrupted_call()))

        async with open_island() as opened, trio.open_nursery() as nursery:
            nursery.start_soon(call, opened)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    await trio.sleep_forever()
        return replies[0]

    assert trio.run(main) == "done"


async def test_other_threads_reach_the_loop(island: AsyncioIsland) -> None:
    called = trio.Event()
    await trio.to_thread.run_sync(island.loop.call_soon_threadsafe, called.set)
    with trio.fail_after(WITHIN_S):
        await called.wait()
    assert await island.run_aio_coroutine(asyncio.to_thread(lambda: 7)) == 7


async def test_closing_cancels_tasks_and_waits_at_most_its_bound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began, ends = autojump_clock.current_time(), []

    async def ending() -> None:
        try:
            await forever()
        finally:
            ends.append("ended")

    async def stubborn() -> None:
        while True:
            try:
                await forever()
            except asyncio.CancelledError:  # noqa: ASYNC103 -- it resists
                continue  # noqa: ASYNC104 -- it resists

    async with open_island() as island:
        tasks = [island.loop.create_task(ending()), island.loop.create_task(stubborn())]
        await trio.testing.wait_all_tasks_blocked()
    assert ends == ["ended"]
    assert [task.done() for task in tasks] == [True, False]
    tasks[1]._log_destroy_pending = False  # type: ignore[attr-defined]
    assert autojump_clock.current_time() - began < CLOSE_S + 0.2
    with pytest.raises(RuntimeError, match="closed"):
        await island.run_aio_coroutine(ending())


async def test_closing_runs_the_callbacks_that_are_left() -> None:
    called: list[str] = []
    async with open_island() as island:
        island.loop.call_soon(island.loop.call_soon, called.append, "the second")
    assert called == ["the second"]
