"""Logs of a pod: JSON lines for machines, one plain line each for people; never local variables."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

from cortex.cli.screen.log_stream import LogStream
from cortex.domain.redaction import redact
from cortex.domain.safe import safe
from cortex.domain.tracing import current

TEXT_MAX: Final = 4_000
"""Characters of one value: job texts must not fill the disk."""
TRACEBACK_MAX: Final = 20_000

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def configure_logs(*, level: int = logging.INFO) -> None:
    """Send logs to stderr: as JSON lines unless stderr is a terminal.

    Includes `logging` records of tools and libraries, from warnings on, and Python's own warnings.
    All other output to stderr goes the same way from here on: see `LogStream`.
    """
    own = sys.__stderr__
    if own is not None and sys.stderr is own:  # not a stream that a test or a caller put there
        own.flush()
        sys.stderr = LogStream(own.fileno())
    is_terminal = sys.stderr.isatty()
    processors: list[Any] = [
        *_first(is_terminal=is_terminal),
        *(_for_people() if is_terminal else _for_machines()),
        _redact_line,
    ]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=processors,
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    others = logging.StreamHandler(sys.stderr)
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    others.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.add_logger_name, strip, *processors]
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[others], force=True)
    logging.captureWarnings(capture=True)


def line_logger(stream: TextIO) -> structlog.typing.FilteringBoundLogger:
    """Return a logger of JSON lines to a stream."""
    processors: list[Any] = [*_first(is_terminal=False), *_for_machines(), _redact_line]
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


def _for_people() -> list[Processor]:
    return [
        _disarm,
        structlog.dev.ConsoleRenderer(pad_event_to=24, exception_formatter=_write_traceback),
    ]


def _add_job(_: object, __: str, event: EventDict) -> EventDict:
    """Name the job that logs, and its trace, so that a line leads to both."""
    if (found := current.trace_id()) is not None:
        event.setdefault("trace_id", found)
    if (job := current.job()) is not None and "job" not in event:
        event["job"], event["job_type"] = job
    return event


def _shorten(_: object, __: str, event: EventDict) -> EventDict:
    """Redact texts before they are cut: half a secret would not be recognised."""
    for key, value in event.items():
        if isinstance(value, str):
            text = redact(value)
            event[key] = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return event


def _disarm(_: object, __: str, event: EventDict) -> EventDict:
    """Make texts of jobs and models safe: they may hold terminal escape sequences."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = safe(value)
    return event


def _redact_line(_: object, __: str, line: str) -> str:
    """Redact text that was only now formatted: lists, errors, values without a JSON form."""
    return redact(line)


def _write_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    stream.write("\n" + safe(_summary(exc_info), newline="\n"))


def _summary(exc_info: ExcInfo) -> str:
    """Return the end of a traceback, without locals: those may hold secrets."""
    return redact("".join(traceback.format_exception(*exc_info)))[-TRACEBACK_MAX:]
