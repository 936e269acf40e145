"""Lines that a pod prints in the background. A thread reads them, so that the pod never waits."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

LINES_MAX: Final = 10_000
"""Lines kept until they are shown; of more the oldest are dropped."""
LINE_BYTES_MAX: Final = 65_536


class PodLines:
    """The lines that were written to a pipe and not yet taken."""

    def __init__(self, reads: int) -> None:
        self._reads = reads
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._thread = threading.Thread(target=self._read, name="pod output", daemon=True)

    def start(self) -> None:
        """Begin to read; after the fork, which must not copy a thread's locks."""
        self._thread.start()

    def taken(self) -> Iterator[str]:
        """Yield and forget the lines read so far."""
        while self._lines:
            yield self._lines.popleft()

    def end(self, within_s: float) -> None:
        """Read what is left; a program that a job has left behind may hold the pipe open."""
        self._thread.join(within_s)

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._reads, LINE_BYTES_MAX):
            *lines, rest = (rest + piece).split(b"\n")
            self._lines.extend(line.decode(errors="replace") for line in lines)
            if len(rest) > LINE_BYTES_MAX:
                self._lines.append(rest.decode(errors="replace"))
                rest = b""
        if rest:
            self._lines.append(rest.decode(errors="replace"))
