"""The one place where a test waits: for something to become true, never for a time to pass."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio
import trio.testing

T = TypeVar("T")

POLL_S = 0.01
WITHIN_S = 60.0  # far above what a loaded machine needs, far below the limit of a test


def eventually(probe: Callable[[], T], *, what: str, within_s: float = WITHIN_S) -> T:
    """Ask `probe` until its answer is true and return it; fails the test naming `what`."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()):
        if time.monotonic() >= give_up_at:
            pytest.fail(f"not within {within_s:g} s: {what} (last answer: {answer!r})")
        time.sleep(POLL_S)
    return answer


async def virtually(seconds: float) -> None:
    """Let time pass on an autojump clock, where it costs none."""
    if isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock):
        await trio.sleep(seconds)
    else:
        pytest.fail("only an autojump clock passes time at once")


async def eventually_async(
    probe: Callable[[], T | Awaitable[T]], *, what: str, within_s: float = WITHIN_S
) -> T:
    """`eventually` for trio tests; `probe` may be a plain or an async function.

    An async probe that hangs is cancelled at the limit. Real time: not for an autojump clock.
    """
    answer: T | str = "none yet"
    with trio.move_on_after(within_s):
        while True:
            found = probe()
            answer = await found if inspect.isawaitable(found) else found
            if answer:
                return answer
            await trio.sleep(POLL_S)
    pytest.fail(f"not within {within_s:g} s: {what} (last answer: {answer!r})")


async def eventually_asyncio(probe: Callable[[], T], *, what: str, within_s: float = WITHIN_S) -> T:
    """`eventually` for tests that run asyncio."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()):
        if time.monotonic() >= give_up_at:
            pytest.fail(f"not within {within_s:g} s: {what} (last answer: {answer!r})")
        await asyncio.sleep(POLL_S)
    return answer


async def asyncio_turn() -> None:
    """Let everything that is ready in the event loop run once."""
    await asyncio.sleep(0)
