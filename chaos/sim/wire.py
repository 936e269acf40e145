"""Talking to the server, from wherever the simulation is: no time passes meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Wire:
    """An asyncio loop with real sockets; the whole thread waits for the end of each call.

    So one call is under way at a time, and no order of events depends on the kernel.
    """

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()

    def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run asyncio code to its end, also in the midst of an island's turn."""

        async def main() -> T:
            return await work()

        with _outside_of_trio():
            return self._loop.run_until_complete(main())

    def close(self) -> None:
        """Nobody talks any more."""
        self._loop.close()


@contextmanager
def _outside_of_trio() -> Iterator[None]:
    """Let asyncio know of no loop that runs: trio-asyncio takes it from the task of trio."""
    context: Any = trio._core._run.GLOBAL_RUN_CONTEXT  # noqa: SLF001 -- as trio-asyncio does
    task = vars(context).pop("task", None)
    loop = asyncio.events._get_running_loop()  # noqa: SLF001 -- its only name
    asyncio.events._set_running_loop(None)  # noqa: SLF001
    try:
        yield
    finally:
        asyncio.events._set_running_loop(loop)  # noqa: SLF001
        if task is not None:
            context.task = task
