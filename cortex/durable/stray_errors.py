"""Errors of user code that are meant for the interpreter: KeyboardInterrupt, SystemExit and others.

They end neither the pod nor the process. A cancellation that nobody has requested, raised by hand
or kept from elsewhere, is one of them: trio would take it for its own.
"""

from typing import NoReturn

import trio

from cortex.actors.phases import is_being_cancelled
from cortex.domain.classification import describe, failure_of, leaves
from cortex.domain.control_flow import LeaseLost, Suspended


class StrayError(Exception):
    """Stands for an error that is no `Exception`, which is its cause; classified as that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe(error))
        self.failure = failure_of(error)


def tamed(error: BaseException) -> BaseException:
    """Return an error of user code as an `Exception`, to be raised instead.

    Control flow, and any error while this task is being cancelled, are returned as they are.
    """
    is_ours = is_being_cancelled() or any(
        isinstance(leaf, (LeaseLost, Suspended)) for leaf in leaves(error)
    )
    return error if is_ours or isinstance(error, Exception) else StrayError(error)


def raise_tamed(error: BaseException) -> NoReturn:
    """Raise an error of user code as an `Exception`: see `tamed`."""
    raise tamed(error)


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


async def close_nurseries(task: trio.lowlevel.Task) -> None:
    """Close the nurseries that user code has left open, in a generator that it did not exhaust.

    The end of a task that has any ends the whole process. Call this in the task itself.
    """
    while task.child_nurseries:
        nursery = task.child_nurseries[-1]
        nursery.cancel_scope.cancel(reason="its job has ended")
        await nursery._nested_child_finished(None)  # noqa: SLF001 -- all that trio has for this
