"""Talks to the server from anywhere in the simulation, while no virtual time passes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import asyncpg
import trio

T = TypeVar("T")


class Loop(asyncio.SelectorEventLoop):
    """An asyncio loop that can run ready callbacks without polling sockets."""

    _ready: deque[asyncio.Handle]

    def run_ready(self) -> None:
        """Run the callbacks that are due now, and those that they make due."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 -- as the loop itself does


class Wire:
    """An asyncio loop with real sockets; the whole thread waits for the end of each call.

    So one call is in flight at a time, and no order of events depends on the kernel.
    """

    def __init__(self) -> None:
        self._loop = Loop()

    def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run asyncio code to its end, even during an island's turn."""

        async def main() -> T:
            return await work()

        with _outside_of_trio():
            return self._loop.run_until_complete(main())

    def talk(
        self,
        session: "asyncpg.Connection[asyncpg.Record]",
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Run code that waits only for one session, without turns of the loop.

        Its socket is read where it waits. Most of a simulation's time is spent in such calls, and
        turns cost a third more.
        """
        transport = cast("Any", session)._transport  # noqa: SLF001
        call = work()
        with _outside_of_trio(self._loop):
            try:
                while True:
                    waiter: Any = call.send(None)
                    waiter._asyncio_future_blocking = False  # noqa: SLF001 -- as a task does
                    if (socket := transport._sock).gettimeout() == 0:  # noqa: SLF001
                        socket.settimeout(None)
                    while not waiter.done() and not transport.is_closing():
                        transport._read_ready()  # noqa: SLF001
                    self._loop.run_ready()
                    if not waiter.done():
                        raise ConnectionResetError("the server has ended a session by itself")
            except StopIteration as end:
                answer: T = end.value
                return answer
            finally:
                call.close()
                self._loop.run_ready()

    def close(self) -> None:
        """No more calls follow."""
        self._loop.close()


@contextmanager
def _outside_of_trio(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Make asyncio see no running loop, or this one: trio-asyncio takes it from trio's task."""
    context: Any = trio._core._run.GLOBAL_RUN_CONTEXT  # noqa: SLF001 -- as trio-asyncio does
    task = vars(context).pop("task", None)
    before = asyncio.events._get_running_loop()  # noqa: SLF001 -- no public name
    asyncio.events._set_running_loop(loop)  # noqa: SLF001
    try:
        yield
    finally:
        asyncio.events._set_running_loop(before)  # noqa: SLF001
        if task is not None:
            context.task = task
