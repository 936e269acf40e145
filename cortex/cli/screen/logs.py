"""Logs of a pod: JSON lines for machines, one plain line each for people; never local variables."""

import logging
import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

from cortex.cli.screen.log_stream import LogStream
from cortex.domain.classification import describe
from cortex.domain.key_shapes import masked, masked_value
from cortex.domain.log_line import Level
from cortex.domain.phrases import short_id
from cortex.domain.redaction import redact
from cortex.domain.safe import safe
from cortex.domain.tracing import current

TEXT_MAX: Final = 4_000
"""Characters of one value: job texts must not fill the disk."""
TRACEBACK_MAX: Final = 20_000
LIBRARIES: Final = (
    *("anthropic", "asyncio", "httpcore2", "httpx2", "hypercorn", "mcp", "openai", "trio"),
)
"""Libraries of Cortex itself: shown from warnings on, also in jobs unless the application has set
their level. httpx2 logs each request, and so each call of a model."""

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


UNEVENTFUL: Final = frozenset(
    {"handing back", "no key for models in the environment", "phase ended"}
)
"""Warnings that each restart of a pod of development would repeat."""


def configure_logs(
    *, level: int = logging.INFO, is_plain: bool = False, is_calm: bool = False
) -> None:
    """Send logs to stderr: as JSON lines unless stderr is a terminal, or `is_plain`.

    `is_calm`: what the pod itself logs is shown from warnings on, and without those of a restart.

    Includes `logging` records of the application, from INFO on, and Python's own warnings. What
    happens outside of the application's jobs is shown from `level` on. All other output to stderr
    goes the same way from here on: see `LogStream`.
    """
    own = sys.__stderr__
    if own is not None and sys.stderr is own:  # not a stream that a test or a caller put there
        own.flush()
        sys.stderr = LogStream(own.fileno())
    is_terminal = is_plain or sys.stderr.isatty()
    processors: list[Any] = [
        *_first(is_terminal=is_terminal),
        *(_for_people(has_colors=not is_plain) if is_terminal else _for_machines()),
        _redact_line,
    ]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(min(level, logging.INFO)),
        processors=[_calm, *processors] if is_calm else processors,
        logger_factory=_printers(sys.stderr, level),
        cache_logger_on_first_use=True,
    )
    others = _Handler(sys.stderr, processors)
    others.addFilter(_shown_from(level))
    logging.basicConfig(level=logging.INFO, handlers=[others], force=True)
    for library in map(logging.getLogger, LIBRARIES):
        if library.level == logging.NOTSET:
            library.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class _Handler(logging.Handler):
    """Writes records as structlog writes its events, in half the time of its own formatter.

    One whose text cannot be made costs a line, not a page of traceback.
    """

    def __init__(self, stream: TextIO, processors: list[Any]) -> None:
        super().__init__()
        self._stream = stream
        self._processors = processors

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Never raises an `Exception`."""
        try:
            event: Any = {"event": record.getMessage(), "logger": record.name}
            if record.exc_info:
                event["exc_info"] = record.exc_info
            if record.stack_info:
                event["stack"] = record.stack_info
            for process in self._processors:
                event = process(None, record.levelname.lower(), event)
            self._stream.write(f"{event}\n")
        except Exception:  # noqa: BLE001 -- wrong arguments, or code of the application
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the library's
        error = sys.exception()
        structlog.get_logger(__name__).warning(
            "log record unreadable",
            logger=record.name,
            at=f"{record.pathname}:{record.lineno}",
            error=None if error is None else describe(error),
        )


def _printers(stream: TextIO, level: int) -> Callable[..., structlog.PrintLogger]:
    """Return a factory of loggers that know their names, and print as `configure_logs` says."""
    below = [each.word for each in Level if each < level]

    def printer(name: str | None = None, *_: object) -> structlog.PrintLogger:
        logger = structlog.PrintLogger(stream)
        logger.name = name  # type: ignore[attr-defined]
        is_own = name is not None and name.startswith("cortex.")
        for word in below:
            setattr(logger, word, _print_nothing if is_own else partial(_print_of_job, logger))
        return logger

    return printer


def _calm(_: object, method: str, event: EventDict) -> EventDict:
    """Drop what only reports that a pod comes and goes; what jobs log stays."""
    if current.claim() is None and (method in {"debug", "info"} or event["event"] in UNEVENTFUL):
        raise structlog.DropEvent
    return event


def _print_nothing(_: str) -> None:
    """Show nothing of an event of our own; a job has kept it, if it is one of a job."""


def _print_of_job(logger: structlog.PrintLogger, text: str) -> None:
    if current.claim() is not None:
        logger.msg(text)


def _shown_from(level: int) -> Callable[[logging.LogRecord], bool]:
    def is_shown(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or current.claim() is not None:
            return True
        is_library = record.name.partition(".")[0] in LIBRARIES
        return level <= logging.INFO and not is_library

    return is_shown


def people_logger(stream: TextIO) -> structlog.typing.FilteringBoundLogger:
    """Return a logger of plain lines to a terminal."""
    processors: list[Any] = [*_first(is_terminal=True), *_for_people(), _redact_line]
    return _logger(processors, stream)


def line_logger(stream: TextIO) -> structlog.typing.FilteringBoundLogger:
    """Return a logger of JSON lines to a stream."""
    return _logger([*_first(is_terminal=False), *_for_machines(), _redact_line], stream)


def _logger(processors: list[Any], stream: TextIO) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    return logger


def _first(*, is_terminal: bool) -> list[Processor]:
    stamp = structlog.processors.TimeStamper(
        fmt="%H:%M:%S" if is_terminal else "iso", utc=not is_terminal
    )
    return [structlog.processors.add_log_level, stamp, _shorten]


def _for_machines() -> list[Processor]:
    return [
        _add_job,
        structlog.processors.ExceptionRenderer(_summary),
        structlog.processors.JSONRenderer(),
    ]


def _for_people(*, has_colors: bool = True) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=has_colors, pad_event_to=24, exception_formatter=_write_traceback
    )
    return [_add_job_briefly, _disarm, renderer]


def _add_job(_: object, __: str, event: EventDict) -> EventDict:
    """Name the job that logs, and its trace, so that a line leads to both."""
    if (found := current.trace_id()) is not None:
        event.setdefault("trace_id", found)
    claim = current.claim()
    if claim is not None and event.setdefault("job", str(claim.lease.job_id)) == str(
        claim.lease.job_id
    ):
        event.setdefault("job_type", claim.type)
        event.setdefault("step", current.step.get())
        event.setdefault("attempt", claim.lease.attempt)
    return event


def _add_job_briefly(_: object, __: str, event: EventDict) -> EventDict:
    """Name the job that logs, for people."""
    claim = current.claim()
    if claim is not None and "job" not in event:
        event["job"] = f"{claim.type} {short_id(claim.lease.job_id)}"
        if (step := current.step.get()) is not None:
            event.setdefault("step", step)
        event.setdefault("attempt", claim.lease.attempt)
    return event


def _shorten(_: object, __: str, event: EventDict) -> EventDict:
    """Redact texts before they are cut: half a secret would not be recognised."""
    for key, value in event.items():
        if isinstance(value, str):
            text = _named(key, redact(value))
            text = masked(text) if len(text) > TEXT_MAX else text  # the whole line is, later
            event[key] = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return event


def _named(key: str, text: str) -> str:
    """Return the text of a field; a mark if its name is that of a secret."""
    return str(masked_value({key: text})[key])


def _disarm(_: object, __: str, event: EventDict) -> EventDict:
    """Make texts of jobs and models safe: they may hold terminal escape sequences."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = safe(value)
    return event


def _redact_line(_: object, __: str, line: str) -> str:
    """Redact text that was only now formatted: lists, errors, values without a JSON form."""
    return masked(redact(line))


def _write_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    stream.write("\n" + safe(_summary(exc_info), newline="\n"))


def _summary(exc_info: ExcInfo) -> str:
    """Return the end of a traceback, without locals: those may hold secrets."""
    return masked(redact("".join(traceback.format_exception(*exc_info))))[-TRACEBACK_MAX:]
