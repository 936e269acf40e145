"""The stream for a pod's logs: writes neither fail nor wait for a reader.

A full disk or an absent or blocked reader costs lines of log. It must not cost jobs or change an
exit code: Python's own stream keeps what it could not write, raises at the next line, and exits
with 120 when the last flush fails.
"""

import io
import os
import select
from typing import Final

PIECE: Final = select.PIPE_BUF
"""Bytes that a pipe takes at once when it is writable."""
PATIENCE_MS: Final = 100
"""Time given to a slow reader; after a time-out later writes do not wait."""


class LogStream(io.TextIOBase):
    """Unbuffered text to a file descriptor."""

    encoding = "utf-8"

    def __init__(self, number: int = 2) -> None:
        self._number = number
        self._lost_count = 0
        self._poll = select.poll()
        self._poll.register(number, select.POLLOUT)

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Write the text; lost pieces are counted, and the count is logged once a write works."""
        if self._lost_count:
            message = f"{self._lost_count} earlier pieces of log could not be written\n"
            if not self._take(message):
                self._lost_count += 1
                return len(text)
            self._lost_count = 0
        if not self._take(text):
            self._lost_count += 1
        return len(text)

    def _take(self, text: str) -> bool:
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data:
                wait_ms = 0 if self._lost_count else PATIENCE_MS
                if not any(observed & select.POLLOUT for _, observed in self._poll.poll(wait_ms)):
                    return False
                data = data[os.write(self._number, data[:PIECE]) :]
        except OSError:
            return False
        return True
