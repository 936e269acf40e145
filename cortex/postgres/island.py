"""The asyncio loop inside trio: an asyncio loop of the standard library, whose turns trio runs.

Owns: the loop, the trio task that drives it, and the asyncio tasks in it. The loop's selector is
itself a file that becomes readable with those in it, and the driver waits for that. A turn runs
everything that follows from an event, so that a reply reaches its caller in trio's next turn. The
first part of a call runs in the trio task of its caller, so that its statement is sent at once.

On failure: an error of a callback is passed to the loop's exception handler, and ends no call.
On stop: what still runs in the loop is cancelled, and has a second to end.
"""

import asyncio
import math
import selectors
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import trio
import trio_asyncio

T = TypeVar("T")
Args = TypeVarTuple("Args")

TURNS_MAX: Final = 100
"""Turns of the loop in one of trio's: callbacks that follow each other forever starve nobody."""
CLOSE_S: Final = 1.0
_CLOSE_POLL_S: Final = 0.01


class Loop(asyncio.SelectorEventLoop):
    """A loop by trio's clock; calls `on_wake` when there is something to do before its next turn.

    A turn polls its files and does not wait for them.
    """

    # Attributes of asyncio's own class.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _run_once: Callable[[], None]

    def __init__(self, clock: trio.abc.Clock, *, on_wake: Callable[[], None]) -> None:
        self._clock = clock
        self._on_wake = on_wake
        self._is_in_turn = False
        self._files = selectors.DefaultSelector()
        super().__init__(self._files)
        self.stop()  # from now on, asyncio waits for nothing in a turn

    def time(self) -> float:
        return self._clock.current_time()

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        if not self._is_in_turn:
            self._on_wake()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if not self._is_in_turn:
            self._on_wake()
        return handle

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run the first part of a coroutine, and all else that can run now."""
        self._is_in_turn = True
        try:
            task = self.create_task(coroutine)
        finally:
            self._is_in_turn = False
        self.run()
        return task

    def run(self) -> None:
        """Run what can run now, in any trio task."""
        # Asyncio code asks the trio task that runs it for the loop.
        token = trio_asyncio.current_loop.set(self)
        self._is_in_turn = True
        try:
            for _ in range(TURNS_MAX):
                self._run_once()
                if not self._ready:
                    break
        finally:
            self._is_in_turn = False
            trio_asyncio.current_loop.reset(token)

    @property
    def next_due(self) -> float:
        """When to run it again if no file becomes ready before."""
        if self._ready:
            return -math.inf
        return self._scheduled[0].when() if self._scheduled else math.inf

    def fileno(self) -> int:
        """Return the file that is readable when one of the loop's is ready."""
        return self._files.fileno()


class AsyncioIsland:
    """A loop and its driver; an `Island` of `cortex.postgres.bridge`."""

    def __init__(self) -> None:
        self.loop = Loop(trio.lowlevel.current_clock(), on_wake=self._wake)
        self._pause = trio.CancelScope()
        self._is_over = False

    async def run_aio_coroutine(self, coroutine: Awaitable[T]) -> T:
        """Run a coroutine to its end, from trio; cancelling cancels it and waits for its end."""
        begun = cast("Coroutine[Any, Any, T]", coroutine)
        if self._is_over:
            begun.close()
            raise RuntimeError("the asyncio loop is closed")
        task = self.loop.begin(begun)
        self._pause.deadline = min(self._pause.deadline, self.loop.next_due)
        result: T = await trio_asyncio.run_aio_future(task)
        return result

    def _wake(self) -> None:
        self._pause.deadline = -math.inf

    async def drive(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the loop until `close`."""
        task_status.started()
        with trio.CancelScope(shield=True):
            while not self._is_over:
                self.loop.run()
                with trio.CancelScope(deadline=self.loop.next_due) as self._pause:
                    await trio.lowlevel.wait_readable(self.loop.fileno())

    async def close(self) -> None:
        """Cancel what still runs, wait for its end within a bound, and end the driver."""
        with trio.move_on_after(CLOSE_S, shield=True):
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                await trio.sleep(_CLOSE_POLL_S)
        self._is_over = True
        self._wake()


@asynccontextmanager
async def open_island() -> AsyncGenerator[AsyncioIsland, None]:
    """Open an asyncio loop inside trio for as long as the block lasts."""
    island = AsyncioIsland()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(island.drive)
            try:
                yield island
            finally:
                await island.close()
    finally:
        island.loop.close()
