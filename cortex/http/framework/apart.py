"""Work on large bodies, off the event loop that runs the jobs.

Owns: the thread in which one body at a time is parsed and checked.
"""

import sys
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from cortex.domain.errors import UnavailableError

T = TypeVar("T")

INLINE_BYTES: Final = 4_096
"""Smaller bodies take less than a millisecond and are handled inline."""
WAITING_MAX: Final = 64
WAIT_S: Final = 20.0
REST: Final = 2.0
"""After each task the thread rests for this multiple of its duration, to leave time for jobs."""
SWITCH_S: Final = 0.001
"""Switch interval of the thread; Python's default is 5 ms."""


class Apart:
    """Runs one task at a time in a thread, which rests in between."""

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._rests_until = float("-inf")

    async def __call__(self, work: Callable[[], T], *, size: int) -> T:
        """Run the work on a body of this size; return its result, or raise its error.

        Raises `UnavailableError` when too many wait already, or for too long.
        """
        if size <= INLINE_BYTES:
            return work()
        if self._turn.statistics().tasks_waiting >= WAITING_MAX:
            raise _crowded()
        with trio.move_on_after(WAIT_S):
            async with self._turn:
                await trio.sleep_until(self._rests_until)
                return await self._in_thread(work)
        raise _crowded()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        sys.setswitchinterval(SWITCH_S)
        began = trio.current_time()
        try:
            return await trio.to_thread.run_sync(work)  # never abandoned: it takes a second at most
        finally:
            ended = trio.current_time()
            self._rests_until = ended + REST * (ended - began)


def _crowded() -> UnavailableError:
    return UnavailableError("too many large bodies at once", hint="send it again in a moment")
