"""The embedded Postgres' log: one file that cannot grow without end and explains failures."""

import os
from pathlib import Path
from typing import IO

from attrs import frozen

from cortex.domain.errors import UnavailableError

MAX_BYTES = 16 * 1024 * 1024
_TAIL_LINES = 8
_TAIL_BYTES = 64 * 1024


@frozen
class ServerLog:
    """What the server and its tools print, appended to one file."""

    path: Path

    def open(self) -> IO[bytes]:
        """Open it for a child's output, emptied when it has grown too large."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        file = os.fdopen(os.open(self.path, flags, 0o600), "a+b")
        if file.seek(0, os.SEEK_END) > MAX_BYTES:
            file.truncate(0)
        return file

    def size(self) -> int:
        """Its length in bytes: where the next line will begin."""
        return self.path.stat().st_size if self.path.exists() else 0

    def failure(self, what: str, *, since: int = 0) -> UnavailableError:
        """The error for `what` went wrong, showing the last lines written after byte `since`."""
        lines: list[str] = []
        if self.path.exists():
            with self.path.open("rb") as file:
                size = self.size()
                begin = since if since <= size else 0  # it was emptied meanwhile
                file.seek(max(begin, size - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return UnavailableError(what, hint=f"the end of {self.path}:\n{tail}")
