"""Asyncio on the simulated clock: replaces trio-asyncio in a simulated pod.

There is one island per machine, driven by one trio task of that machine. Its timers use the
simulated clock. It has no sockets: whatever really talks to Postgres does so on the `Wire`.
"""

import asyncio
import heapq
import math
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import outcome
import trio
import trio_asyncio
from trio.lowlevel import Abort, RaiseCancelT, Task

T = TypeVar("T")


class Killed(BaseException):
    """The machine is dead: code that runs there has no effect any more."""


class NoSockets(selectors.DefaultSelector):
    """Never has events, and never waits."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        return []


class Loop(asyncio.SelectorEventLoop):
    """An asyncio loop that is driven manually."""

    # Attributes of asyncio's own class.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _run_once: Callable[[], None]

    def __init__(self, clock: trio.abc.Clock) -> None:
        self._clock = clock
        super().__init__(NoSockets())
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._clock.current_time()

    def turn(self) -> None:
        """Run everything that can run at this instant."""
        asyncio.events._set_running_loop(self)  # noqa: SLF001 -- no public name
        try:
            while self._ready or self.next_due_s <= self.time():
                self._run_once()
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001

    @property
    def next_due_s(self) -> float:
        """When the next timer is due."""
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
            self._timer_cancelled_count -= 1
        return timers[0].when() if timers else math.inf


class Island:
    """A loop and the trio task that drives it; an `Island` of `cortex.postgres.bridge`."""

    def __init__(self, clock: trio.abc.Clock) -> None:
        self.loop = Loop(clock)
        self._is_over = False
        self._callers: dict[Task, None] = {}
        self._poked = trio.Event()

    def poke(self) -> None:
        """There may be something to do, or an earlier timer."""
        self._poked.set()

    async def run_aio_coroutine(self, coroutine: Awaitable[T]) -> T:
        """Run a coroutine to its end, from trio; cannot be cancelled. Raises `Killed`."""
        caller = trio.lowlevel.current_task()
        if self._is_over:
            cast("Coroutine[Any, Any, T]", coroutine).close()
            raise Killed
        task = self.loop.create_task(cast("Coroutine[Any, Any, T]", coroutine))
        task.add_done_callback(lambda done: self._ended(caller, done))
        self._callers[caller] = None
        self.poke()
        result: T = await trio.lowlevel.wait_task_rescheduled(_never)
        return result

    def _ended(self, caller: Task, task: "asyncio.Task[Any]") -> None:
        if caller in self._callers:
            del self._callers[caller]
            trio.lowlevel.reschedule(caller, outcome.capture(task.result))

    def end(self) -> None:
        """Let nothing run here any more; raise `Killed` in all waiting tasks."""
        self._is_over = True
        callers, self._callers = self._callers, {}
        for caller in callers:
            trio.lowlevel.reschedule(caller, outcome.Error(Killed()))
        self.poke()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Drive the loop until `end` or `die`; cancelling first ends the tasks that need it."""
        trio_asyncio.current_loop.set(self.loop)
        task_status.started()
        with trio.CancelScope(shield=True):
            while not self._is_over:
                self.loop.turn()
                with trio.move_on_at(self.loop.next_due_s):
                    await self._poked.wait()
                self._poked = trio.Event()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.turn()
        self.loop.close()


def _never(_: RaiseCancelT) -> Abort:
    return Abort.FAILED
