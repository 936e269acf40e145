"""Takes what code of jobs logs and prints, whatever the application has configured.

Calls of `logging` and structlog are taken where every logger passes, so that a configuration of the
application's own changes nothing; standard output and error are replaced. Threads that a job starts
belong to that job. Code of no job is not touched.
"""

import io
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, thread
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TextIO, cast

import structlog
from structlog import BoundLoggerBase

from cortex.domain.classification import describe
from cortex.domain.log_line import Level, level_of_method, shown
from cortex.domain.redaction import redact
from cortex.domain.tracing import current
from cortex.domain.tracing.current import Origin
from cortex.durable.job_log import Quiet, is_quiet

TRACEBACK_CHARS_MAX: Final = 6_000
"""The end of a traceback, which is nearest to the failure; never with local variables."""
_PLAIN: Final = vars(logging.LogRecord("", 0, "", 0, "", (), None))
_ATTRIBUTES_COUNT: Final = len(_PLAIN)
_OF_RECORDS: Final = frozenset(_PLAIN | {"message": 0, "asctime": 0, "taskName": 0})
"""Attributes that every record has; others are fields."""
_NOT_FIELDS: Final = frozenset({"exc_info", "stack_info", "stack", "_record", "_logger", "_name"})
_OF_LINES: Final = frozenset({"job", "type", "attempt"})
"""Fields of our own events that each kept line has anyway."""

_lock: Final = threading.Lock()
_installed: "list[Callable[[], None]] | None" = None
_users = 0


@contextmanager
def captured() -> Generator[None, None, None]:
    """Keep what jobs write for as long as the block lasts; several may overlap in a process."""
    global _installed, _users  # noqa: PLW0603 -- what it replaces is global
    with _lock:
        _users += 1
        if _installed is None:
            _installed = [_loggers(), _structlog(), _threads()]
    try:
        with captured_streams():
            yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for restore in reversed(_installed or []):
                    restore()
                _installed = None


# --- logging


def _loggers() -> Callable[[], None]:
    call_handlers = logging.Logger.callHandlers

    def taking(self: logging.Logger, record: logging.LogRecord) -> None:
        found = None if is_quiet() else current.origin()
        if found is None:
            call_handlers(self, record)
            return
        _keep_record(found, record)
        with Quiet():
            call_handlers(self, record)

    logging.Logger.callHandlers = taking  # type: ignore[method-assign]
    return partial(setattr, logging.Logger, "callHandlers", call_handlers)


def _keep_record(found: Origin, record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001 -- wrong arguments, or code of the application
        message = f"{shown(record.msg)} (its arguments do not fit: {describe(error)})"
    if record.exc_info and record.exc_info[1] is not None:
        message = f"{message}\n{_traceback(record.exc_info[1])}"
    given = vars(record)
    fields = (
        {name: each for name, each in given.items() if name not in _OF_RECORDS}
        if len(given) > _ATTRIBUTES_COUNT
        else None
    )
    level = Level.of_number(record.levelno)
    found.log.add(
        found.claim, level, message, step=found.step, source=shown(record.name), fields=fields
    )


# --- structlog


def _structlog() -> Callable[[], None]:
    proxy, process = BoundLoggerBase._proxy_to_logger, BoundLoggerBase._process_event  # noqa: SLF001

    # Only by position: fields of events may have any name.
    def proxying(self: BoundLoggerBase, /, *args: Any, **kw: Any) -> Any:
        if is_quiet() or current.origin() is None:
            return proxy(self, *args, **kw)
        return _proxied(partial(proxy, self, *args, **kw))

    def processing(self: BoundLoggerBase, method: str, event: Any, kw: dict[str, Any]) -> Any:
        found = _taken.origin
        if found is None:
            return process(self, method, event, kw)
        _taken.origin = None  # one event per call
        fields = {**self._context, **kw}
        try:
            processed = process(self, method, event, kw)
        except structlog.DropEvent:  # the application wants no such lines
            raise
        except Exception as error:
            _keep_event(found, method, event, fields | {"not_logged": describe(error)}, self)
            raise
        _keep_event(found, method, event, fields, self)
        return processed

    def _proxied(call: Callable[[], Any]) -> Any:
        _taken.origin = current.origin()
        try:
            with Quiet():
                return call()
        finally:
            _taken.origin = None

    def restore() -> None:
        BoundLoggerBase._proxy_to_logger = proxy  # type: ignore[method-assign]  # noqa: SLF001
        BoundLoggerBase._process_event = process  # type: ignore[method-assign]  # noqa: SLF001

    BoundLoggerBase._proxy_to_logger = proxying  # type: ignore[method-assign, assignment]  # noqa: SLF001
    BoundLoggerBase._process_event = processing  # type: ignore[method-assign, assignment]  # noqa: SLF001
    return restore


class _Taken(threading.local):
    """The call of a logger that is under way in this thread."""

    origin: Origin | None = None


_taken: Final = _Taken()


def _keep_event(
    found: Origin, method: str, event: Any, fields: dict[str, Any], logger: BoundLoggerBase
) -> None:
    message = shown(event)
    error = fields.get("exc_info")
    if error is True:
        error = sys.exception()
    elif isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        message = f"{message}\n{_traceback(error)}"
    name = fields.get("logger") or getattr(logger._logger, "name", None)  # noqa: SLF001
    own = _OF_LINES if isinstance(name, str) and name.startswith("cortex.") else frozenset()
    found.log.add(
        found.claim,
        level_of_method(method),
        message,
        step=found.step,
        source=None if name is None else shown(name),
        fields={key: each for key, each in fields.items() if key not in _NOT_FIELDS | own},
    )


def _traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as second:  # noqa: BLE001 -- code of the application's own error
        return f"{type(error).__name__} without a traceback: {describe(second)}"
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text.rstrip()
    return f"…{redact(text)[-TRACEBACK_CHARS_MAX:]}"  # the end of a secret is not recognised


# --- threads


def _threads() -> Callable[[], None]:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def starting(self: threading.Thread) -> None:
        found = current.origin()
        # A worker of a pool serves whoever submits.
        if found is not None and getattr(self, "_target", None) is not thread._worker:  # noqa: SLF001
            self.run = partial(_run_as, found, self.run)  # type: ignore[method-assign]
        start(self)

    def submitting(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "Future[Any]":
        found = current.origin()
        if found is not None:
            function = partial(_run_as, found, function)
        return submit(self, function, *args, **kwargs)

    def restore() -> None:
        threading.Thread.start = start  # type: ignore[method-assign]
        ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]

    threading.Thread.start = starting  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submitting  # type: ignore[method-assign, assignment]
    return restore


def _run_as(found: Origin, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with current.resumed(found):
        return function(*args, **kwargs)


# --- standard output and error


@contextmanager
def captured_streams() -> Generator[None, None, None]:
    """Keep what jobs print for as long as the block lasts."""
    kept = [(name, KeptStream(name, inner), inner) for name, inner in _streams()]
    for name, stream, _ in kept:
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream, inner in kept:
            if getattr(sys, name) is stream:  # else somebody has put another one in its place
                setattr(sys, name, inner)


def _streams() -> Iterator[tuple[str, TextIO]]:
    """Yield the streams that nobody keeps yet."""
    for name in ("stdout", "stderr"):
        inner = getattr(sys, name)
        if inner is not None and not isinstance(inner, KeptStream):
            yield name, inner


class KeptStream(io.TextIOBase):
    """A stream that passes on everything, and keeps what jobs write."""

    def __init__(self, name: str, inner: TextIO) -> None:
        self._name = name
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._inner.encoding

    @property
    def buffer(self) -> Any:
        """For code that prints bytes."""
        return _KeptBytes(self, self._inner.buffer)

    def fileno(self) -> int:
        return self._inner.fileno()

    def isatty(self) -> bool:
        return self._inner.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the other stream open: this one is only put before it for a while."""

    def flush(self) -> None:
        self._inner.flush()

    def write(self, text: str) -> int:
        with Quiet():  # another stream in its place may log what it is given
            count = self._inner.write(text)
        self.keep(text)
        return count

    def keep(self, text: str) -> None:
        """Keep text that a job has written."""
        found = None if is_quiet() else current.origin()
        if found is not None:
            found.log.write(
                found.claim,
                text,
                step=found.step,
                stream=self._name,
                thread=threading.get_ident(),
            )


class _KeptBytes(io.RawIOBase):
    def __init__(self, text: KeptStream, inner: Any) -> None:
        self._text = text
        self._inner = inner

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return cast("int", self._inner.fileno())

    def flush(self) -> None:
        self._inner.flush()

    def write(self, data: Any) -> int:
        with Quiet():
            count = cast("int", self._inner.write(data))
        self._text.keep(bytes(data).decode(errors="replace"))
        return count
