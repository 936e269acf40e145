"""A terminal with a screen for a measured program: what is painted on it, and when."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from cortex.domain.errors import TimedOutError

BOUND_S: Final = 30.0
GOODBYE_S: Final = 5.0
PIECE_MAX: Final = 65_536
COLUMNS: Final = 118  # wide enough for all columns of a list: from 120 on a pane replaces some
LINES: Final = 40
_TOKEN: Final = re.compile(
    # H moves the cursor; other commands show nothing
    r"\x1b\[(?P<numbers>[0-9;]*)(?P<letter>[A-Za-z])"
    r"|\x1b\[[<-?][0-9;$]*[a-z]|\x1b[\]P][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78M]"
    r"|(?P<text>[^\x1b]+)"
)

Probe = Callable[[Sequence[str]], bool]
"""Whether the lines of the screen show the expected state."""


class Glass:
    """Runs a program on a pseudo-terminal and reads its output in a thread; a context manager.

    Instants are those of `time.perf_counter`. Every character of the program must be one cell wide.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], folder: Path) -> None:
        self._lines = [" " * COLUMNS] * LINES
        self._rest = ""
        self._row = self._column = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lock = threading.Lock()
        self._probe: Probe | None = None
        self._seen_at = 0.0
        self._seen = threading.Event()
        self.on_paint: Callable[[Sequence[str], float], None] | None = None
        """Called with each painted line and its instant, in the reading thread."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.began = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 -- our own programs
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=dict(environ),
            start_new_session=True,
        )
        os.close(slave)
        self.process = psutil.Process(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="glass", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(GOODBYE_S)
        os.close(self._master)

    @property
    def text(self) -> str:
        """Return the text on the screen."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self._lines)

    def press(self, keys: str) -> None:
        """Press keys without waiting."""
        os.write(self._master, keys.encode())

    def until(self, probe: Probe, *, what: str, keys: str = "") -> float:
        """Press keys, if any; return the instant at which the screen showed the expected state.

        Raises `TimedOutError` that names `what`.
        """
        with self._lock:
            self._seen.clear()
            if not keys and probe(self._lines):
                return time.perf_counter()
            self._probe = probe
        self.press(keys)
        if not self._seen.wait(BOUND_S):
            shown = self.text.partition("\n")[0].strip()
            raise TimedOutError(f"never appeared on the screen: {what}; the screen shows: {shown}")
        return self._seen_at

    def timed(self, keys: str, probe: Probe, *, what: str) -> float:
        """Press keys; return the seconds until the screen showed the expected state."""
        began = time.perf_counter()
        return self.until(probe, what=what, keys=keys) - began

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, PIECE_MAX)
            except OSError:  # the program has closed the terminal
                return
            at = time.perf_counter()
            # Read everything available first, so that processing this piece does not delay the
            # timestamps of the rest.
            while len(piece) < PIECE_MAX and select.select([self._master], [], [], 0)[0]:
                try:
                    piece += os.read(self._master, PIECE_MAX)
                except OSError:
                    break
                at = time.perf_counter()
            with self._lock:
                painted = self._take(self._decode(piece))
                if self.on_paint is not None:
                    self.on_paint(painted, at)
                if self._probe is not None and self._probe(self._lines):
                    self._probe, self._seen_at = None, at
                    self._seen.set()

    def _take(self, text: str) -> Sequence[str]:
        """Paint the output; return the changed lines."""
        text = self._rest + text
        at, touched = 0, set[int]()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or (found.end() == len(text) and found["text"] is None):
                break  # the rest of the sequence comes with the next piece
            at = found.end()
            if found["text"] is not None:
                touched |= self._write(found["text"])
            elif found["letter"] == "H":
                row, _, column = found["numbers"].partition(";")
                self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        self._rest = text[at:]
        return [self._lines[row] for row in sorted(touched)]

    def _write(self, text: str) -> set[int]:
        touched = set[int]()
        for number, part in enumerate(re.split("\r?\n", text)):
            if number:
                self._row, self._column = self._row + 1, 0
            if part and self._row < LINES:
                line, start = self._lines[self._row], self._column
                self._column += len(part)
                self._lines[self._row] = line[:start] + part + line[self._column :]
                touched.add(self._row)
        return touched
