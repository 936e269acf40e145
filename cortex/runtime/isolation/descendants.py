"""Programs that a job has started in a process of its own: they end with the job.

Daemons that have left its process group end too: the kernel gives orphans to the nearest subreaper
above them (Linux).
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

PR_SET_CHILD_SUBREAPER: Final = 36
WITHIN_S: Final = 1.0
POLL_S: Final = 0.002

_log = structlog.get_logger(__name__)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(*, spared: Collection[int] = (), within_s: float = WITHIN_S) -> None:
    """Kill the children of this process and all below them, except `spared` ones; reap them.

    Blocks until they are gone, or `within_s`: a process that hangs in the kernel is left.
    """
    until = time.monotonic() + within_s
    while left := _children() - set(spared):
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() >= until:
            _log.warning("processes left behind", pids=sorted(left))
            return
        select.select([], [], [], POLL_S)


def _children() -> set[int]:
    """Return the children of all threads of this process."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found.update(map(int, path.read_text().split()))
    return found
