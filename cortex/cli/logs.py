"""Logs of a pod: JSON lines for machines, one calm line each for people; never local variables."""

import logging
import sys

import structlog


def configure_logs(*, level: int = logging.INFO, as_json: bool | None = None) -> None:
    """Send logs to stderr: as JSON lines unless stderr is a terminal."""
    json_lines = not sys.stderr.isatty() if as_json is None else as_json
    # Tracebacks without locals: those may hold secrets.
    render: list[structlog.typing.Processor] = (
        [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
        if json_lines
        else [
            structlog.dev.ConsoleRenderer(
                pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(
                fmt="iso" if json_lines else "%H:%M:%S", utc=json_lines
            ),
            *render,
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
