"""Hooks of the interpreter and of trio in a process that runs jobs.

They are for errors that no code can catch: of `__del__`, of threads that job code starts, and of
generators that it leaves unfinished. These are logged, with the job whose code runs, and end
nothing. Trio itself ends the process if it cannot read the error of a task, which runs code of that
error; here it reads another one in its place.
"""

import logging
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

import structlog
import trio
from outcome import _impl as outcomes

from cortex.domain.classification import describe
from cortex.domain.tracing import current
from cortex.durable.stray_errors import StrayError, readable

OPENS_NURSERY: Final = frozenset({"open_nursery", "create_task_group"})
"""Functions of trio and anyio."""

_GENERATOR_ERRORS: Final = logging.getLogger("trio.async_generator_errors")

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

    remove_frames = outcomes.remove_tb_frames  # type: ignore[attr-defined]

    def removed(error: BaseException, count: int) -> BaseException:
        try:
            shortened: object = remove_frames(error, count)
            return shortened if shortened is error else StrayError(error)
        except BaseException:  # noqa: BLE001, ASYNC103 -- code of the job's own error
            return StrayError(error)  # noqa: ASYNC104 -- it awaits nothing

    sys.unraisablehook, threading.excepthook = _note_unraisable, _note_in_thread
    sys.set_asyncgen_hooks(finalizer=finalized)
    outcomes.remove_tb_frames = removed  # type: ignore[attr-defined, assignment]
    _GENERATOR_ERRORS.addFilter(_with_readable_error)
    guard = _Guard()
    trio.lowlevel.add_instrument(guard)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(guard)
        _GENERATOR_ERRORS.removeFilter(_with_readable_error)
        outcomes.remove_tb_frames = remove_frames  # type: ignore[attr-defined]
        sys.unraisablehook, threading.excepthook = unraisable, in_thread
        sys.set_asyncgen_hooks(finalizer=finalize)


class _Guard(trio.abc.Instrument):
    """Has trio read the errors of tasks that job code starts through a `_Guarded`."""

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if current.is_job(task.context):
            task.coro = _Guarded(task.coro)  # type: ignore[assignment]


class _Guarded:
    """Takes the place of a task's coroutine, and raises its errors `readable`."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)

    def send(self, value: Any) -> Any:
        given = [value]
        del value  # an error in it refers to this frame, and would never be freed at once
        return self._resume(self._coroutine.send, given)

    def throw(self, error: BaseException) -> Any:
        given = [error]
        del error
        return self._resume(self._coroutine.throw, given)

    def _resume(self, resume: Callable[[Any], Any], given: list[Any]) -> Any:
        try:
            return resume(given.pop())
        except StopIteration:
            raise
        except BaseException as error:  # noqa: ASYNC103 -- raised below
            stray = readable(error)
            if stray is error:
                del stray
                raise
        raise stray  # outside, so that what cannot be read is not its context


def _with_readable_error(record: logging.LogRecord) -> bool:
    """Let a log record of trio be formatted, which reads the error of a job's generator."""
    if record.exc_info and record.exc_info[1] is not None:
        _, error, traceback_ = record.exc_info
        try:
            traceback.format_exception(error)  # also reads what the error hides
        except BaseException:  # noqa: BLE001, ASYNC103 -- code of the job's own error
            record.exc_info = StrayError, StrayError(error), traceback_
    return True


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
