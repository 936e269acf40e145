"""Runs of jobs beside a test: in threads of their own, awaited in the test's async library.

A test may have a fake clock of its own, so the limit in real time is kept by a thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import sniffio

from cortex.domain.errors import UsageError
from cortex.testing.outcome import PromiseBrokenError, StuckError

T = TypeVar("T")
REAL_S: Final = 30.0
"""The most real time that one run may take."""
LEAVES_S: Final = 3.0
"""The most real time that it then may take to clean up."""


@attrs.frozen
class Work:
    """Something that runs in a thread, and can be stopped from another one."""

    run: Callable[[], Any]
    stop: Callable[[str], None]
    """Ends it early, with a reason for people."""


def blocking(work: Work) -> Any:
    """Do the work in a thread and return its result. Raises its error, and `StuckError`."""
    __tracebackhide__ = True
    try:
        return _result(_begun(work.run), work)
    except (StuckError, PromiseBrokenError) as error:
        raise error.with_traceback(None) from None  # its place is in the test


async def awaited(work: Work) -> Any:
    """Do the same for a test on trio or asyncio. Cancelled, the work is stopped."""
    __tracebackhide__ = True
    match sniffio.current_async_library():
        case "trio":
            wait = _on_trio
        case "asyncio":
            wait = _on_asyncio
        case library:
            hint = "use trio or asyncio"
            raise UsageError(f"async library {library!r} is not supported", hint=hint)
    try:
        return await wait(work)
    except (StuckError, PromiseBrokenError) as error:
        raise error.with_traceback(None) from None


async def _on_trio(work: Work) -> Any:
    import trio  # noqa: PLC0415 -- loaded already

    done = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def notify(_: object) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(done.set)

    future = _begun(partial(blocking, work))
    future.add_done_callback(notify)
    try:
        await done.wait()
    except trio.Cancelled:
        work.stop("the test was cancelled")
        raise
    return future.result()


async def _on_asyncio(work: Work) -> Any:
    import asyncio  # noqa: PLC0415 -- loaded already

    try:
        return await asyncio.wrap_future(_begun(partial(blocking, work)))
    except asyncio.CancelledError:
        work.stop("the test was cancelled")
        raise


def _begun(run: Callable[[], T]) -> "Future[T]":
    """Start something in a thread that does not keep the process alive."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a test that is cancelled does not cancel it

    def fulfil() -> None:
        __tracebackhide__ = True
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised in the test
            future.set_exception(error)
        else:
            future.set_result(result)

    context = copy_context()
    threading.Thread(target=partial(context.run, fulfil), name="cortex test", daemon=True).start()
    return future


def _result(future: "Future[T]", work: Work) -> T:
    __tracebackhide__ = True
    try:
        return future.result(REAL_S)
    except TimeoutError:
        if future.done():  # it was the work's own
            raise
    work.stop(f"has not ended after {REAL_S:.0f} real seconds")
    try:
        return future.result(LEAVES_S)
    except TimeoutError:
        if future.done():
            raise
        raise StuckError(
            f"the job has not ended after {REAL_S:.0f} real seconds: it blocks or computes without "
            "an await; give such code to ctx.step as a function that is not async"
        ) from None
