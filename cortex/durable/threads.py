"""Calls a user's function: an async one is awaited, any other runs in a thread.

A thread cannot be cancelled. When its caller is, the thread is left behind and its result dropped:
neither a time-out nor a shutdown waits for it.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Final

import trio
from trio.lowlevel import RunVar

from cortex.domain.limits import THREADS_MAX
from cortex.durable.stray_errors import tamed

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
    except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised
        raised = tamed(error)
    try:
        raise raised  # outside, so that an error that cannot be read is not its context
    finally:
        del raised  # it refers to this frame


# --- Threads, bounded: what a time-out leaves behind keeps its thread until it ends by itself.


class Thread:
    """A turn among the threads, for one function."""

    __slots__ = ("_limiter", "is_over", "is_used")

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        self.is_used = False
        self.is_over = False

    async def run(self, run: Callable[[], Any]) -> Any:
        """Run a function in it. Cancelled, leave it behind."""
        raised: list[BaseException] = []

        def work() -> Any:
            try:
                return run()
            except BaseException as error:  # noqa: BLE001, ASYNC103 -- on its way trio would run the error's own code
                raised.append(error)
                return None  # noqa: ASYNC104 -- raised below
            finally:
                self.is_over = True
                _left.discard(self)

        try:
            result = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self)  # type: ignore[arg-type]
        except trio.Cancelled:
            if self.is_used:
                _left.add(self)
                if self.is_over:
                    _left.discard(self)
            raise
        if raised:
            raise raised.pop()
        return result

    def is_of(self, limiter: trio.CapacityLimiter) -> bool:
        return self._limiter is limiter

    def give_back(self) -> None:
        """Give up the turn unless it is used."""
        if not self.is_used:
            self.is_used = True
            self._limiter.release_on_behalf_of(self)

    # The interface of a limiter, for the library: the turn is held already.

    async def acquire_on_behalf_of(self, _: object) -> None:
        self.is_used = True

    def release_on_behalf_of(self, _: object) -> None:
        self._limiter.release_on_behalf_of(self)


_left: Final[set[Thread]] = set()
_reserved: ContextVar[Thread | None] = ContextVar("reserved thread", default=None)


def left_threads() -> int:
    """Return how many threads of this process were left behind and have not ended since."""
    return len(_left)


def threads_in_use() -> int:
    """Return how many threads tasks of this run of Trio wait for, or may wait for."""
    library, ours = trio.to_thread.current_default_thread_limiter(), _thread_limiter()
    left = sum(thread.is_of(ours) for thread in _left)
    return int(library.borrowed_tokens + ours.borrowed_tokens) - left


@asynccontextmanager
async def thread_for(function: Callable[..., Any]) -> AsyncIterator[None]:
    """Wait for a thread for a function that is called in the block.

    So its clock starts with its thread. Does nothing for an async function.
    """
    if is_async(function) or _reserved.get() is not None:
        yield
        return
    thread = await _free_thread()
    token = _reserved.set(thread)
    try:
        yield
    finally:
        _reserved.reset(token)
        thread.give_back()


async def in_thread(run: Callable[[], Any]) -> Any:
    """Run a function in one of a bounded number of threads. Cancelled, it leaves the thread."""
    thread = _reserved.get()
    if thread is None or thread.is_used:
        thread = await _free_thread()
    try:
        return await thread.run(run)
    finally:
        thread.give_back()


async def _free_thread() -> Thread:
    limiter = _thread_limiter()
    thread = Thread(limiter)
    await limiter.acquire_on_behalf_of(thread)
    return thread


def _thread_limiter() -> trio.CapacityLimiter:
    return limiter_of_run(_limiter, THREADS_MAX)


def limiter_of_run(variable: RunVar[trio.CapacityLimiter], tokens: int) -> trio.CapacityLimiter:
    """Return the limiter that this run of Trio keeps in a variable; made on first use."""
    try:
        return variable.get()
    except LookupError:
        limiter = trio.CapacityLimiter(tokens)
        variable.set(limiter)
        return limiter
