"""Runs asyncio code for jobs: one event loop in a thread of its own, for the whole process.

The loop lives as long as the process, so that clients and pools of asyncio libraries may be kept in
it. It is not that of the database: code that blocks holds up other asyncio steps, and nothing else.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import attrs
import trio

from cortex.durable.stray_errors import tamed
from cortex.logger import Logger

CANCELLED_WITHIN_S: Final = 8.0
"""Code that ignores its cancellation so long is left behind, as code on trio is."""
_log = Logger(__name__)


def on_asyncio(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function for trio that awaits this one in the asyncio loop.

    It raises the function's error, `StrayError` for one that is no `Exception`. Cancelled, it
    cancels the asyncio task and waits for its end at most 8 s.
    """

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        work = _Work(
            functools.partial(function, *args, **kwargs), trio.lowlevel.current_trio_token()
        )
        loop = _loop()
        _under_way.add(work)
        loop.call_soon_threadsafe(work.start, loop)
        try:
            await work.done.wait()
        except trio.Cancelled:
            if work.call_off():
                raise
            loop.call_soon_threadsafe(work.cancel)
            with trio.move_on_after(CANCELLED_WITHIN_S, shield=True):
                await work.done.wait()
            if not work.done.is_set():
                _log.warning("asyncio code ignores its cancellation", code=_name_of(function))
            raise
        finally:
            _under_way.discard(work)
        if work.error is None:
            return work.value
        raised = tamed(work.error)
        try:
            raise raised  # outside, so that an error that cannot be read is not its context
        finally:
            del raised, work  # they refer to this frame

    return call


@attrs.define(eq=False)
class _Work:
    call: Callable[[], Any]
    token: trio.lowlevel.TrioToken
    value: Any = None
    error: BaseException | None = None
    done: trio.Event = attrs.field(factory=trio.Event)
    task: "asyncio.Task[None] | None" = None
    _is_off: bool = attrs.field(default=False, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def call_off(self) -> bool:
        """Return whether it has not begun; it will not begin then. From another thread."""
        with self._lock:
            self._is_off = True
            return self.task is None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._is_off:
                return
            self.task = loop.create_task(self._run())
        self.task.add_done_callback(self._ended)  # also of a task that was cancelled before it ran

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            made = self.call()
            self.value = await made if inspect.isawaitable(made) else made
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- it would end the loop, on which all wait
            self.error = error

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self.error = asyncio.CancelledError()
        with suppress(trio.RunFinishedError):  # nobody waits any more
            self.token.run_sync_soon(self.done.set)


_under_way: Final[set[_Work]] = set()


def calls_under_way() -> int:
    """Return how many calls of this process wait for their asyncio code."""
    return len(_under_way)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


# --- the loop


_lock = threading.Lock()
_running: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of this process: a forked one has its parent's variables, and none of its threads."""


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if os.getpid() not in _running:
            _running.clear()
            _running[os.getpid()] = _started()
        return _running[os.getpid()]


def _started() -> asyncio.AbstractEventLoop:
    started: Future[asyncio.AbstractEventLoop] = Future()

    def run() -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            started.set_result(loop)
            while True:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # A task that job code began raised it: only that task ends.
                    _log.error("a task of asyncio tried to end the process", error=repr(error))

    threading.Thread(target=run, name="asyncio of jobs", daemon=True).start()
    return started.result()
