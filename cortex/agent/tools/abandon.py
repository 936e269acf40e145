"""Calls that cannot block their caller: one that ignores its cancellation is left behind.

Trio ends no task that shields itself, so such a call runs in a separate task, as threads do. Left
behind, it goes on alone until it ends by itself; its result is dropped.
"""

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import trio

from cortex.durable.stray_errors import close_nurseries
from cortex.logger import Logger

T = TypeVar("T")

PATIENCE_S: Final = 8.0
"""From cancelling a call to leaving it; ending a child process takes up to seven seconds."""

_log = Logger(__name__)
_left: "WeakSet[_AbandonableCall[Any]]" = WeakSet()


def left_count() -> int:
    """Return how many calls of this process were left behind and have not ended since."""
    return sum(not call.ended.is_set() for call in _left)


async def abandonable(function: Callable[[], Awaitable[T]], *, name: str) -> T:
    """Await `function()`. On cancellation, return at most `PATIENCE_S` later in any case."""
    call = _AbandonableCall(function)
    trio.lowlevel.spawn_system_task(call.run, name=name, context=contextvars.copy_context())
    try:
        await call.ended.wait()
    finally:
        if not call.ended.is_set():
            call.scope.cancel()
            with trio.move_on_after(PATIENCE_S, shield=True):
                await call.ended.wait()
            if not call.ended.is_set():
                _left.add(call)
                _log.warning("call left behind", call=name)
    return call.result()


class _AbandonableCall(Generic[T]):
    """One call, in a task of its own."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._returned: list[T] = []
        self._raised: BaseException | None = None
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self) -> None:
        try:
            with self.scope:
                self._returned.append(await self._function())
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised by `result`, to the waiter
            self._raised = error
        finally:
            self.ended.set()
            await close_nurseries(trio.lowlevel.current_task())  # noqa: ASYNC102 -- cancels them first

    def result(self) -> T:
        if self._raised is not None:
            raise self._raised
        return self._returned[0]
