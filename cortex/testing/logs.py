"""Logs of a test: tracebacks without local variables, whose formatting takes seconds."""

from collections.abc import Sequence
from typing import Any

import attrs
import structlog


@attrs.define
class PlainLogs:
    """Plain output of structlog, unless the application has configured it."""

    _ours: Sequence[Any] | None = attrs.field(default=None, init=False)

    def begin(self) -> None:
        if structlog.is_configured():
            return
        *first, _ = structlog.get_config()["processors"]
        shown = structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )
        self._ours = [*first, shown]
        structlog.configure(processors=self._ours)

    def end(self) -> None:
        """Restore structlog's defaults, unless the application has configured it since."""
        if self._ours is not None and structlog.get_config()["processors"] is self._ours:
            structlog.reset_defaults()
        self._ours = None
