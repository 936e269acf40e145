"""Output of job code, as JSON lines that name the job.

A pod whose log is not on a terminal writes JSON lines. What jobs and libraries print, and what they
write to stderr, becomes such lines too, on the same stream. Programs that a job starts, and C code,
write to the descriptors themselves and are not seen here.
"""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from cortex.cli.screen.log_stream import LogStream
from cortex.cli.screen.logs import TEXT_MAX, line_logger
from cortex.domain.tracing import current

OPEN_MAX: Final = 256
"""Lines that were begun and not ended, of as many jobs and threads."""

_Line = tuple[object, int]
"""The job and the thread that print it."""


class JobOutput(io.TextIOBase):
    """A text stream that calls `emit` for each line, within the context of its job.

    Keeps `TEXT_MAX` characters of a line. Thread-safe; a write never fails.
    """

    encoding = "utf-8"

    def __init__(self, raw: TextIO, emit: Callable[[str], None]) -> None:
        self.raw = raw
        """The stream in whose place it is, for output that is meant for people."""
        self._emit = emit
        self._open: dict[_Line, str] = {}
        self._lock = threading.RLock()

    @property
    def buffer(self) -> "_Bytes":
        """For code that prints bytes."""
        return _Bytes(self)

    def fileno(self) -> int:
        return self.raw.fileno()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        line = current.job(), threading.get_ident()
        with self._lock:
            *ended, rest = (self._open.pop(line, "") + text[: _room(text)]).split("\n")
            for each in ended:
                self._emit(each)
            if rest:
                self._open[line] = rest[: TEXT_MAX + 1]
            while len(self._open) > OPEN_MAX:
                self._emit(self._open.pop(next(iter(self._open))))
        return len(text)

    def end(self) -> None:
        """Emit the lines that were begun."""
        with self._lock:
            while self._open:
                self._emit(self._open.popitem()[1])


def _room(text: str) -> int:
    """Return how many characters of a text are read: a single endless line is cut."""
    return len(text) if "\n" in text else TEXT_MAX + 1


class _Bytes(io.RawIOBase):
    def __init__(self, text: JobOutput) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode(errors="replace"))
        return len(data)


@contextmanager
def job_output_as_lines() -> Iterator[None]:
    """Turn output into JSON lines if the logs of this process are JSON lines."""
    if sys.stderr.isatty():
        yield
        return
    kept = out, errors = sys.stdout, sys.stderr
    streams = [_lines("stderr", errors, sink=errors)]
    sys.stderr = streams[0]
    if not out.isatty():
        # A stream that a test or a caller put there takes the lines itself.
        is_own = out is sys.__stdout__
        sink = cast("TextIO", LogStream(out.fileno()) if is_own else out)
        sys.stdout = _lines("stdout", out, sink=sink)
        streams.append(sys.stdout)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept
        for each in streams:
            each.end()


def _lines(name: str, raw: TextIO, *, sink: TextIO) -> JobOutput:
    logger = line_logger(sink)

    def emit(text: str) -> None:
        if text:
            logger.info("output", text=text, stream=name)

    return JobOutput(raw, emit)
