"""Where a client's asyncio code runs: in the caller's loop, or in a thread with a loop of its own.

In asyncio it is the caller's loop. Trio and code without an event loop get a thread: the driver is
made for asyncio. Cancelling a call cancels it there, which cuts its connection.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

import sniffio

from cortex.domain.errors import UnavailableError, UsageError

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]
FINISH_S: Final = 3.0
"""For closing a client."""
CANCEL_S: Final = 1.0
"""For calls that still run when the thread is stopped."""
STOP_S: Final = 3.0


class Loop(Protocol):
    """Runs asyncio code for a caller of one async library."""

    async def run(self, work: Work[T]) -> T: ...

    async def finish(self, work: Work[None]) -> None:
        """Run to the end, also in a caller that is cancelled, within a bound."""
        ...

    def stop(self) -> None:
        """Refuse further calls."""
        ...

    @property
    def is_stopped(self) -> bool: ...


class CallersLoop:
    """The running asyncio loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    async def run(self, work: Work[T]) -> T:
        if self._is_stopped:
            raise _closed()
        if not self._is_running:
            raise UsageError(
                "this client belongs to another event loop",
                hint="connect one in each event loop, or use SyncClient",
            )
        return await work()

    @property
    def _is_running(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # trio, or none
            return False

    async def finish(self, work: Work[None]) -> None:
        async with asyncio.timeout(FINISH_S):
            await self.run(work)

    def stop(self) -> None:
        self._is_stopped = True


class ThreadLoop:
    """A daemon thread that runs an asyncio loop until `stop`, or the end of the process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._is_stopped = False
        self._lock = threading.Lock()  # no call begins after the stop: nothing would end it
        # Not asyncio.new_event_loop: importing trio_asyncio changes what that makes.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="cortex client", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            if tasks := asyncio.all_tasks(self._loop):
                for task in tasks:
                    task.cancel()
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))
            self._loop.run_until_complete(asyncio.sleep(0))  # sockets close in a callback
            self._loop.close()

    def begin(self, work: Work[T]) -> Future[T]:
        if os.getpid() != self._pid:
            raise UsageError(
                "this client was connected before the process forked",
                hint="connect one in each worker process",
            )
        with self._lock:
            if self._is_stopped:
                raise _closed()
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def call(self, work: Work[T]) -> T:
        """Run to the end, from any thread; Ctrl-C cancels it."""
        future = self.begin(work)
        try:
            return future.result()
        except CancelledError as error:
            raise _cut() from error  # noqa: ASYNC104 -- closing the client cut it, not the caller
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread within a bound; calls that still run are cancelled."""
        atexit.unregister(self.stop)
        if os.getpid() != self._pid:
            return
        with self._lock:
            was_stopped, self._is_stopped = self._is_stopped, True
            if not was_stopped:
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)


class TrioLoop(ThreadLoop):
    """The same for trio tasks."""

    async def run(self, work: Work[T]) -> T:
        import trio  # noqa: PLC0415 -- only programs that use it

        await trio.lowlevel.checkpoint_if_cancelled()
        task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
        future = self.begin(work)

        def wake(_: object) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(trio.lowlevel.reschedule, task)

        def abort(_: object) -> trio.lowlevel.Abort:
            future.cancel()
            return trio.lowlevel.Abort.FAILED

        future.add_done_callback(wake)
        await trio.lowlevel.wait_task_rescheduled(abort)
        try:
            return future.result()
        except CancelledError as error:
            await trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC102 -- it waits for nothing
            raise _cut() from error  # noqa: ASYNC104 -- the call was cut by closing the client, not by its caller

    async def finish(self, work: Work[None]) -> None:
        import trio  # noqa: PLC0415

        with trio.move_on_after(FINISH_S, shield=True):
            await self.run(work)


def _closed() -> UsageError:
    return UsageError("this client is closed", hint="connect another one")


def _cut() -> UnavailableError:
    return UnavailableError("the client was closed during the call")


def current_loop() -> Loop:
    """Return the loop for the running async library. Raises `UsageError` outside of one."""
    try:
        library = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        raise UsageError(
            "there is no running event loop here", hint="use SyncClient in code without one"
        ) from None
    if library == "asyncio":
        return CallersLoop()
    if library == "trio":
        return TrioLoop()
    raise UsageError(f"async library {library!r} is not supported", hint="use asyncio or trio")
