"""Ends the code of handlers that ignore their cancellation: trio itself ends no task.

A cancelled scope raises at every Trio checkpoint in it, but not behind a shield, and code may catch
that and go on. So shields are lifted, and a task that goes on even then is not resumed any more. It
cannot be unwound either: what it holds, in memory, it holds as long as the process lives.

A task that waits for something that no cancellation ends, such as a thread, ends when that is over.
Use this only for tasks whose jobs have ended without them.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import trio

_PORT: Final = "cortex.postgres."
"""Database calls are bounded, and end better by themselves."""


class Ending:
    """Takes the place of a task's coroutine: the task ends where it would go on."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self._task = task
        self._coroutine = task.coro
        self.is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def send(self, value: Any) -> Any:
        """Go on only as long as there are tasks below: trio ends no task before those."""
        if any(map(is_used, self._task.child_nurseries)):
            return self._coroutine.send(value)
        self._task._child_nurseries.clear()  # noqa: SLF001 -- nothing will close them
        # Garbage collection, also at the end of the process, would resume it once more.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._coroutine))
        self.is_over = True
        raise StopIteration


def end(task: trio.lowlevel.Task) -> bool:
    """End a task of a cancelled scope, and all below it; return whether it has ended.

    Call this again until it has: its code may begin new tasks and shields meanwhile.
    """
    if isinstance(task.coro, Ending) and task.coro.is_over:
        return True
    around = task.parent_nursery
    for each in list(_tree(task)):
        if not isinstance(each.coro, Ending):
            each.coro = Ending(each)  # type: ignore[assignment]
        if not _is_at_database(each):
            for scope in _scopes(each, None if around is None else around.cancel_scope):
                scope.shield = False
    return False


def is_used(nursery: trio.Nursery) -> bool:
    """Return whether tasks run in a nursery, or are about to."""
    return bool(nursery.child_tasks) or nursery._pending_starts > 0  # noqa: SLF001


def _tree(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tree(child)


def _scopes(
    task: trio.lowlevel.Task, around: trio.CancelScope | None
) -> Iterator[trio.CancelScope]:
    """Yield the scopes around the code of a task, the innermost first, up to its nursery's.

    A scope that the job's own end has closed is no longer among them.
    """
    status: Any = task._cancel_status  # noqa: SLF001 -- trio shows it nowhere else
    while status is not None and status._scope is not around:  # noqa: SLF001
        yield status._scope  # noqa: SLF001
        status = status.parent


def _is_at_database(task: trio.lowlevel.Task) -> bool:
    return any(
        str(frame.f_globals.get("__name__", "")).startswith(_PORT)
        for frame, _ in task.iter_await_frames()
    )
