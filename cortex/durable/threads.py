"""Calls a user's function: an async one is awaited, any other runs in a thread.

A thread cannot be cancelled. When its caller is, the thread is left behind and its result dropped:
neither a time-out nor a shutdown waits for it.
"""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import trio
from trio.lowlevel import RunVar

from cortex.durable.stray import raise_tamed

THREADS_MAX: Final = 500
_limiter: RunVar[trio.CapacityLimiter] = RunVar("threads of jobs and tools")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of this function is to be awaited; as `inspect` says, but cheap."""
    if type(function) is FunctionType:
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(function)


async def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, which may be async or not; return its result.

    Raises its error; `StrayError` for one that is no `Exception`.
    """
    try:
        if is_async(function):
            return await function(*args, **kwargs)
        # A lambda or a callable object may return an awaitable, which trio would refuse.
        (made,) = await in_thread(lambda: (function(*args, **kwargs),))
        return await made if inspect.isawaitable(made) else made
    except Exception:
        raise
    except BaseException as error:  # noqa: BLE001 -- raised
        raise_tamed(error)


async def in_thread(run: Callable[[], Any]) -> Any:
    """Run a function in one of a bounded number of threads. Cancelled, it leaves the thread."""
    raised: list[BaseException] = []

    def work() -> Any:
        try:
            return run()
        except BaseException as error:  # noqa: BLE001 -- on its way trio would run the error's own code
            raised.append(error)
            return None

    result = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_thread_limiter())
    if raised:
        raise raised.pop()
    return result


def _thread_limiter() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS_MAX)
        _limiter.set(limiter)
        return limiter
