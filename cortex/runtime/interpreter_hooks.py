"""Hooks of the interpreter and of trio in a process that runs jobs.

They are for errors that no code can catch: of `__del__`, of threads that job code starts, and of
generators that it leaves unfinished. These are logged, with the job whose code runs, and end
nothing. Trio itself ends the process if the `repr` of a task's error fails; here it does not.
"""

import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

import structlog
import trio
from outcome import Error, Outcome

from cortex.domain.classification import describe
from cortex.domain.tracing import current
from cortex.durable.stray_errors import StrayError

OPENS_NURSERY: Final = frozenset({"open_nursery", "create_task_group"})
"""Functions of trio and anyio."""

_log = structlog.get_logger(__name__)


@contextmanager
def hooked() -> Generator[None, None, None]:
    """Install the hooks for as long as the block lasts, inside a run of trio."""
    unraisable, in_thread = sys.unraisablehook, threading.excepthook
    finalize = sys.get_asyncgen_hooks().finalizer

    def finalized(generator: AsyncGenerator[Any, Any]) -> None:
        if _opens_nursery(generator):
            # Trio would close the nursery in another task, and then wake the job in the middle of
            # any of its waits. The end of the job's own task closes it: see `stray_errors`. An
            # interpreter finalizes a generator once: it is freed now, and none of its code runs.
            _log.warning("generator left with an open nursery", at=_name(generator), job=_job())
        elif finalize is not None:
            finalize(generator)

    child_finished = trio.Nursery._child_finished  # noqa: SLF001 -- trio has no hook for it

    def finished(nursery: trio.Nursery, task: trio.lowlevel.Task, ended: Outcome[object]) -> None:
        child_finished(nursery, task, _readable(ended) if isinstance(ended, Error) else ended)

    sys.unraisablehook, threading.excepthook = _note_unraisable, _note_in_thread
    sys.set_asyncgen_hooks(finalizer=finalized)
    trio.Nursery._child_finished = finished  # type: ignore[assignment, method-assign]  # noqa: SLF001
    try:
        yield
    finally:
        trio.Nursery._child_finished = child_finished  # type: ignore[method-assign]  # noqa: SLF001
        sys.unraisablehook, threading.excepthook = unraisable, in_thread
        sys.set_asyncgen_hooks(finalizer=finalize)


def _readable(ended: Error) -> Error:
    """Return a task's error, as `StrayError` if its `repr` fails: trio needs that."""
    try:
        repr(ended.error)
    except BaseException:  # noqa: BLE001, ASYNC103 -- code of the job's own error
        return Error(StrayError(ended.error))  # noqa: ASYNC104 -- it awaits nothing
    return ended


def _opens_nursery(generator: AsyncGenerator[Any, Any]) -> bool:
    code: CodeType | None = getattr(generator, "ag_code", None)
    return code is not None and not OPENS_NURSERY.isdisjoint(code.co_names)


def _note_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    error = unraisable.exc_value or unraisable.exc_type()
    _log.error("error ignored", error=describe(error), at=_name(unraisable.object), job=_job())


def _note_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is SystemExit:  # a way to end a thread
        return
    error = args.exc_value or args.exc_type()
    thread = None if args.thread is None else args.thread.name
    _log.error("thread failed", error=describe(error), thread=thread, job=_job())


def _name(owner: object) -> str:
    return str(getattr(owner, "__qualname__", type(owner).__qualname__))


def _job() -> str | None:
    job_id = current.job_id()
    return None if job_id is None else str(job_id)
