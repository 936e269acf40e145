"""A process whose event loop is stuck ends; one that is slow, or was stopped, continues."""

import threading
import time
from typing import Any

import pytest
import trio

from cortex.runtime import deadman
from cortex.runtime.loop_guard import LoopGuard, Silence
from tests.support.eventually import eventually_async

STILL_S = 0.2
HELD_S = 0.05
CHECK_S = 0.01
GIVEN_UP_S = 10.0


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Exit codes that the process would have ended with."""
    found: list[Any] = []

    def arm(after_s: float, *, message: str) -> None:
        found.append((after_s, message))

    monkeypatch.setattr(deadman, "arm", arm)
    return found


async def test_a_loop_that_stands_still_ends_its_process(ended: list[Any]) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(LoopGuard(still_s=STILL_S, check_s=CHECK_S).run)
        until = time.monotonic() + GIVEN_UP_S
        while not ended and time.monotonic() < until:
            pass
        nursery.cancel_scope.cancel()
    ((after_s, message),) = ended
    assert after_s == 0.0
    assert message.startswith("event loop blocked for")


async def test_a_loop_that_turns_is_left_alone(ended: list[Any]) -> None:
    """Although it has been held for longer than that, all in all."""
    still_s = 10 * HELD_S
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            until = time.monotonic() + HELD_S
            while time.monotonic() < until:
                pass
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        await nursery.start(LoopGuard(still_s=still_s, check_s=CHECK_S).run)
        nursery.start_soon(count)
        await eventually_async(lambda: turns >= 12, what="it was held again and again")
        nursery.cancel_scope.cancel()
    assert ended == []


async def test_loop_guard_thread_ends_with_it() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(LoopGuard(still_s=STILL_S, check_s=CHECK_S).run)
        nursery.cancel_scope.cancel()
    await eventually_async(
        lambda: LoopGuard.name not in {each.name for each in threading.enumerate()},
        what="the thread ends",
    )


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    silence = Silence(check_s=1.0)
    silence.polled(is_answered=False, passed_s=1.0)
    silence.polled(is_answered=False, passed_s=3600.0)
    assert silence.seconds == 3.0
    silence.polled(is_answered=True, passed_s=1.0)
    assert silence.seconds == 0.0
