"""Locks between processes that no crash can leave behind: `flock` on files in the data directory.

The kernel drops a lock when the last descriptor of its open file is closed, however the process
ends. So a lock says "somebody is alive" without process ids, which the kernel uses again.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

POLL_S = 0.01  # a start takes some 50 ms: waiting longer between looks would be felt


def poll(probe: Callable[[], T], *, within_s: float) -> T:
    """Ask `probe` until its answer is true; returns the last one, false after `within_s`."""
    give_up_at = time.monotonic() + within_s
    while not (answer := probe()) and time.monotonic() < give_up_at:
        time.sleep(POLL_S)
    return answer


class FileLock:
    """One open lock file, held shared, exclusively or not at all.

    Python opens files close-on-exec, so a child holds the lock only if it is given `fd` on purpose.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and create it if absent; raises OSError. Takes no lock yet."""
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def try_exclusive(self) -> bool:
        """Become the only holder, without waiting; on False a shared hold is lost as well.

        When several holders of a shared lock try this at once, exactly one of them succeeds.
        """
        return self._try(fcntl.LOCK_EX)

    def exclusive(self, *, within_s: float) -> bool:
        """Wait to be the only holder; False when that took too long."""
        return poll(self.try_exclusive, within_s=within_s)

    def shared(self, *, within_s: float) -> bool:
        """Wait until nobody holds it exclusively; False when that took too long."""
        return poll(lambda: self._try(fcntl.LOCK_SH), within_s=within_s)

    def close(self) -> None:
        """Drop this process's hold; a child that was given `fd` keeps its own. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _try(self, how: int) -> bool:
        try:
            fcntl.flock(self.fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
