"""The asyncio loop inside trio: an asyncio loop of the standard library, whose turns trio runs.

Owns: the loop, the trio task that drives it, and the asyncio tasks in it. The loop's selector is
itself a file that becomes readable with those in it, and the driver waits for that. A turn runs
everything that follows from an event, so that a reply reaches its caller in trio's next turn. The
first part of a call runs in the trio task of its caller, so that its statement is sent at once.

On failure: an error of a callback is passed to the loop's exception handler, and ends no call. One
that asks the process to end (`SystemExit`) cancels the block around the loop, which goes on until
the block has ended, and is then raised as the cause of a `RuntimeError`.
On stop: what still runs in the loop is cancelled, and has a second to end.
"""

import asyncio
import math
import selectors
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast

import structlog
import trio

from cortex.postgres import asyncio_names  # noqa: F401 -- before trio_asyncio

# isort: split
import trio_asyncio
from trio.lowlevel import RaiseCancelT

T = TypeVar("T")
Args = TypeVarTuple("Args")

TURNS_MAX: Final = 100
"""Turns of the loop in one of trio's: callbacks that follow each other forever starve nobody."""
CLOSE_S: Final = 1.0
_CLOSE_POLL_S: Final = 0.01

_log = structlog.get_logger(__name__)


class Files(selectors.DefaultSelector):
    """The files of a loop; polled when asked for, and never waited for."""

    is_poll_due = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        if not self.is_poll_due:
            return []
        self.is_poll_due = False
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """A loop by trio's clock; calls `on_wake` for what is to be done before its next turn.

    `on_exit` gets what a callback raised to end the process.
    """

    # Attributes of asyncio's own class.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _run_once: Callable[[], None]

    def __init__(
        self,
        clock: trio.abc.Clock,
        *,
        on_wake: Callable[[], None],
        on_exit: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._on_wake = on_wake
        self._on_exit = on_exit
        self._is_in_turn = False
        self._files = Files()
        super().__init__(self._files)

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

    @trio.lowlevel.enable_ki_protection  # an interrupt in a callback would end another's call
    def begin(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run the first part of a coroutine, and all else that can run now."""
        self._is_in_turn = True
        try:
            task = self.create_task(coroutine)
        finally:
            self._is_in_turn = False
        self._run()
        return task

    def poll(self) -> None:
        """Run the callbacks of all files that are ready, and all else that can run now."""
        self._files.is_poll_due = True
        self._run()

    def _run(self) -> None:
        # Asyncio code asks the trio task that runs it for the loop: any one may.
        token = trio_asyncio.current_loop.set(self)
        self._is_in_turn = True
        # Tasks of Python 3.14 run in the thread's running loop only.
        asyncio._set_running_loop(self)  # noqa: SLF001 -- made for loops of others
        try:
            for _ in range(TURNS_MAX):
                try:
                    self._run_once()
                except (SystemExit, KeyboardInterrupt) as error:
                    # Raised from here it would end the driver, on which every call waits.
                    self._on_exit(error)
                if not self._ready:
                    break
        finally:
            self._is_in_turn = False
            asyncio._set_running_loop(None)  # noqa: SLF001
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


class Call(Generic[T]):
    """A coroutine that runs in the loop for a trio task, which it wakes at its end by itself.

    The callbacks of a task would cost one more turn of the loop.
    """

    __slots__ = ("_caller", "_coroutine", "_error", "_is_over", "_raise_cancel", "_result")

    def __init__(self, coroutine: Awaitable[T]) -> None:
        self._coroutine = coroutine
        self._caller: trio.lowlevel.Task | None = None
        self._raise_cancel: RaiseCancelT | None = None
        self._is_over = False
        self._error: BaseException | None = None
        self._result: T

    async def run(self) -> None:
        """Run it, in the loop."""
        try:
            self._result = await self._coroutine
        except GeneratorExit:  # nothing drives the loop any more
            raise
        except BaseException as error:  # noqa: ASYNC103, BLE001 -- raised in the caller
            self._error = error
        self._is_over = True
        if self._caller is not None:
            trio.lowlevel.reschedule(self._caller)

    async def wait(self, task: "asyncio.Task[None]") -> T:
        """Wait for its end, from trio, and return or raise its result."""

        def abort(raise_cancel: RaiseCancelT) -> trio.lowlevel.Abort:
            self._raise_cancel = raise_cancel
            task.cancel()
            return trio.lowlevel.Abort.FAILED

        if self._is_over:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            self._caller = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)
        try:
            if self._error is None:
                return self._result
            if self._raise_cancel and isinstance(self._error, asyncio.CancelledError):
                self._raise_cancel()
            raise self._error
        finally:
            self._error = None  # its traceback holds this frame


class AsyncioIsland:
    """A loop and its driver; an `Island` of `cortex.postgres.bridge`."""

    def __init__(self) -> None:
        clock = trio.lowlevel.current_clock()
        self.loop = Loop(clock, on_wake=self._wake, on_exit=self._exit)
        self.scope = trio.CancelScope()
        """Around the block that uses the loop."""
        self.exit: BaseException | None = None
        """What a callback raised to end the process."""
        self._pause = trio.CancelScope()
        """Around the driver's wait: it ends when the next timer is due, or by `_wake`."""
        self._is_over = False

    async def run_aio_coroutine(self, coroutine: Awaitable[T]) -> T:
        """Run a coroutine to its end, from trio; cancelling cancels it and waits for its end."""
        if self._is_over:
            cast("Coroutine[Any, Any, T]", coroutine).close()
            raise RuntimeError("the asyncio loop is closed")
        call = Call(coroutine)
        task = self.loop.begin(call.run())
        if self.loop.next_due < self._pause.deadline:
            self._wake()
        return await call.wait(task)

    def _exit(self, error: BaseException) -> None:
        if self.exit is None:
            _log.error("asyncio code ends the process", error=repr(error), at=_place_of(error))
            self.exit = error
            self.scope.cancel(reason="asyncio code ends the process")

    def _wake(self) -> None:
        self._pause.deadline = -math.inf

    @trio.lowlevel.enable_ki_protection  # nobody else would end the calls that wait
    async def drive(self) -> None:
        """Run the loop until `close`."""
        with trio.CancelScope(shield=True):
            while not self._is_over:
                with trio.CancelScope() as self._pause:
                    await self._run_until_woken()

    async def _run_until_woken(self) -> None:
        while True:
            self.loop.poll()
            if self.loop.next_due != self._pause.deadline:  # the check costs less than a new one
                self._pause.deadline = self.loop.next_due
            await trio.lowlevel.wait_readable(self.loop.fileno())

    async def close(self) -> None:
        """Cancel what still runs, wait for its end within a bound, and end the driver."""
        with trio.move_on_after(CLOSE_S, shield=True):
            while tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                await trio.sleep(_CLOSE_POLL_S)
        self._is_over = True
        self.loop.poll()  # what was closed last closes its socket in a callback
        self._wake()


@asynccontextmanager
async def open_island() -> AsyncGenerator[AsyncioIsland, None]:
    """Open an asyncio loop inside trio for as long as the block lasts."""
    island = AsyncioIsland()
    try:
        async with trio.open_nursery() as nursery:
            # Not `nursery.start`: cancelled, it waits for the driver, which waits for `close`.
            nursery.start_soon(island.drive)
            try:
                with island.scope:
                    yield island
            finally:
                await island.close()  # noqa: ASYNC102 -- bounded by itself
    finally:
        island.loop.close()
    if island.exit is not None:
        raise RuntimeError(f"asyncio code ended the process by {island.exit!r}") from island.exit


def _place_of(error: BaseException) -> str:
    """Return the line that raised it."""
    (*_, last) = traceback.extract_tb(error.__traceback__)
    return f"{last.filename}:{last.lineno}"
