"""Output of job code, as lines that name the job, its step and its attempt.

A pod whose log is not on a terminal writes JSON lines. What jobs and libraries print, and what they
write to stderr, becomes such lines too, on the same stream. On a terminal, what jobs print becomes
plain lines, whose escape sequences are visible; everything else is passed on. Programs that a job
starts, and C code, write to the descriptors themselves and are not seen here.
"""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, TextIO, cast

from cortex.cli.screen.log_stream import LogStream
from cortex.cli.screen.logs import TEXT_MAX, line_logger, people_logger
from cortex.domain.log_line import LOOKAHEAD_CHARS, without_long_secrets
from cortex.domain.tracing import current

OPEN_MAX: Final = 256
"""Lines that were begun and not ended, of as many jobs and threads."""
READ_MAX: Final = TEXT_MAX + LOOKAHEAD_CHARS
"""Characters of a line that are kept until it is ended: more than are shown, so that a secret at
the cut is recognised as a whole."""

_Line = tuple[object, int]
"""The attempt and the thread that print it."""


class JobOutput(io.TextIOBase):
    """A text stream that calls `emit` for each line, within the context of its job.

    Keeps `READ_MAX` characters of a line. Thread-safe; a write never fails. With `only_jobs` all
    other text is passed on.
    """

    encoding = "utf-8"

    def __init__(
        self, raw: TextIO, emit: Callable[[str], None], *, only_jobs: bool = False
    ) -> None:
        self.raw = raw
        """The stream in whose place it is, for output that is meant for people."""
        self._emit = emit
        self._only_jobs = only_jobs
        self._open: dict[_Line, tuple[str, Context]] = {}
        self._lock = threading.RLock()

    @property
    def buffer(self) -> "_Bytes":
        """For code that prints bytes."""
        return _Bytes(self)

    def fileno(self) -> int:
        return self.raw.fileno()

    def isatty(self) -> bool:
        return self._only_jobs

    def flush(self) -> None:
        if self._only_jobs:
            self.raw.flush()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        claim, count = current.claim(), len(text)
        if claim is None and self._only_jobs:
            return self.raw.write(text)
        line = None if claim is None else claim.lease, threading.get_ident()
        text = without_long_secrets(text)
        with self._lock:
            begun, context = self._open.pop(line, ("", None))
            *ended, rest = (begun + text[: _room(text)]).split("\n")
            for each in ended:
                self._emit(each)
            if rest:
                self._open[line] = rest[:READ_MAX], context or copy_context()
            while len(self._open) > OPEN_MAX:
                self._end(next(iter(self._open)))
        return count

    def _end(self, line: _Line) -> None:
        text, context = self._open.pop(line)
        context.run(self._emit, text)

    def end(self) -> None:
        """Emit the lines that were begun."""
        with self._lock:
            while self._open:
                self._end(next(iter(self._open)))


def _room(text: str) -> int:
    """Return how many characters of a text are read: a single endless line is cut."""
    return len(text) if "\n" in text else READ_MAX


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
    """Turn output into lines: JSON, or plain ones of jobs where the stream is a terminal."""
    kept = out, errors = sys.stdout, sys.stderr
    is_own = out is sys.__stdout__
    # A stream that a test or a caller put there takes the lines itself.
    sink = cast("TextIO", LogStream(out.fileno()) if is_own else out)
    streams = [_lines("stderr", errors, sink=errors), _lines("stdout", out, sink=sink)]
    sys.stderr, sys.stdout = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept
        for each in streams:
            each.end()


def _lines(name: str, raw: TextIO, *, sink: TextIO) -> JobOutput:
    if raw.isatty():
        plain = people_logger(sink)

        def show(text: str) -> None:
            if text:
                plain.info(text[:TEXT_MAX])

        return JobOutput(raw, show, only_jobs=True)
    logger = line_logger(sink)

    def emit(text: str) -> None:
        if text:
            logger.info("output", text=text, stream=name)

    return JobOutput(raw, emit)
