"""A bound on what the library logs: a server decides what it is about, and how often."""

import logging
import time
from typing import Final

import attrs

LOGGERS: Final = ("client", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher")
"""Loggers of a session and of its transport; an application may use the first name, too."""
RECORDS_MAX: Final = 10
WINDOW_S: Final = 60.0


@attrs.define(eq=False)
class Sparse:
    """Lets few records through, without tracebacks: each message that is wrong would have one.

    What ends a session is in its own error, and in a warning of ours.
    """

    _since: float = attrs.field(factory=time.monotonic)
    _count: int = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be logged."""
        if "/mcp/" not in record.pathname:
            return True
        record.exc_info = None
        now = time.monotonic()
        if now - self._since > WINDOW_S:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= RECORDS_MAX


_SPARSE: Final = Sparse()


def bound_library_logs() -> None:
    """Bound the library's records in this process. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_SPARSE)
