"""Errors of user code that are meant for the interpreter: KeyboardInterrupt, SystemExit and others.

They end neither the pod nor the process. A cancellation that nobody has requested, raised by hand
or kept from elsewhere, is one of them: trio would take it for its own.
"""

from contextlib import suppress
from operator import attrgetter
from typing import Final, NoReturn

import trio

from cortex.actors.phases import is_being_cancelled
from cortex.domain.classification import MEMBERS_MAX, describe, failure_of, leaves
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.durable.abandoning import end, is_used
from cortex.logger import Logger

_log = Logger(__name__)


class StrayError(Exception):
    """Stands for an error that is no `Exception`, which is its cause; classified as that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe(error))
        self.failure = failure_of(error)


def readable(error: BaseException) -> BaseException:
    """Return an error of user code whose parts can be read: by trio, the log and the record.

    An error that runs failing code there, such as a property that raises, becomes a `StrayError`;
    a group with such a member becomes a group of its leaves.
    """
    if _is_readable(error):
        return error
    members = leaves(error)
    if members[0] is error:
        return StrayError(error)
    tame = [each if _is_readable(each) else StrayError(each) for each in members]
    return BaseExceptionGroup("several failed", tame)


_parts: Final = attrgetter("__cause__", "__context__", "__suppress_context__", "args")
_notes: Final = attrgetter("__notes__")


def _is_readable(error: BaseException) -> bool:
    """Try all that trio and the standard library do with an error that a task raises."""
    waiting, count = [error], 0
    try:
        while waiting and count < MEMBERS_MAX:
            each = waiting.pop()
            count += 1
            isinstance(each, trio.Cancelled)  # may call `__class__`
            repr(each)
            if each.with_traceback(each.__traceback__) is not each:
                return False  # trio would take what it returned
            _parts(each)
            with suppress(AttributeError):
                _notes(each)
            if issubclass(type(each), BaseExceptionGroup):
                waiting += each.exceptions  # type: ignore[attr-defined]
                each.split(trio.Cancelled)  # type: ignore[attr-defined]
                each.derive(each.exceptions)  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001, ASYNC103 -- code of the job's own error
        return False  # noqa: ASYNC104 -- it awaits nothing
    return not waiting


def tamed(error: BaseException) -> BaseException:
    """Return an error of user code as a `readable` `Exception`, to be raised instead.

    Control flow, and any error while this task is being cancelled, are returned as they are.
    """
    error = readable(error)
    is_ours = is_being_cancelled() or any(
        isinstance(leaf, (LeaseLost, Suspended)) for leaf in leaves(error)
    )
    if is_ours or isinstance(error, Exception):
        return error
    stray = StrayError(error)
    stray.__cause__ = error
    return stray


# --- Errors in the tasks of a nursery, which would swallow a stray cancellation.


def unless_cancelled(error: BaseException) -> BaseException:
    """Return an error, a stray cancellation as an `Exception`.

    Raises the error if it is the cancellation of this task.
    """
    if not any(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
        return error
    if is_being_cancelled():
        raise error
    return tamed(error)


def raise_all(errors: list[BaseException]) -> NoReturn:
    """Raise the only one of these errors unchanged, or all of them as a group."""
    try:
        raise errors[0] if len(errors) == 1 else BaseExceptionGroup("several failed", errors)
    finally:
        errors.clear()  # their tracebacks hold the list


HEED_S: Final = 5.0
"""How long the tasks of a nursery that was left open may take to clean up."""
END_S: Final = 1.0
"""How long the tasks that go on may then take until they are left behind."""
POLL_S: Final = 0.02


async def close_nurseries(task: trio.lowlevel.Task) -> None:
    """Close the nurseries that user code has left open, in a generator that it did not exhaust.

    The end of a task that has any ends the whole process. Call this in the task itself. Returns
    after at most `HEED_S` and `END_S`: tasks that go on are ended, and those that wait for
    something that no cancellation ends are left behind, alone.
    """
    if not task.child_nurseries:
        return
    await _empty(list(task.child_nurseries))
    while task.child_nurseries:
        nursery = task.child_nurseries[-1]
        if is_used(nursery):
            left = [child.name for child in nursery.child_tasks]
            _log.warning("tasks left behind", tasks=left, hint="shield only what ends soon")
            nursery._closed = True  # noqa: SLF001 -- takes no new tasks
            task._child_nurseries.pop()  # noqa: SLF001 -- nothing will close it
        else:
            await nursery._nested_child_finished(None)  # noqa: SLF001 -- all that trio has for this


async def leave_actor(task: trio.lowlevel.Task, error: BaseException) -> BaseException:
    """Close the nurseries that an attempt left open; return its error, `readable`.

    Raises the cancellation of its task, if any.
    """
    await close_nurseries(task)
    await trio.lowlevel.checkpoint_if_cancelled()
    return readable(error)


async def _empty(nurseries: list[trio.Nursery]) -> None:
    for nursery in nurseries:
        nursery.cancel_scope.cancel(reason="its job has ended")
    deaf_at = trio.current_time() + HEED_S
    with trio.move_on_after(HEED_S + END_S, shield=True):
        while any(map(is_used, nurseries)):
            if trio.current_time() >= deaf_at:
                for child in [child for each in nurseries for child in each.child_tasks]:
                    end(child)
            await trio.sleep(POLL_S)
