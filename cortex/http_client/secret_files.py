"""The files in which this process finds secrets: tools refuse to open them, by whatever name.

A file is known by device and inode, as it is now and as it was when it was read last, so that
neither a link nor a replacement hides it. Known are the files that the operator permits for
headers, those of the subscriptions that this process serves, and those that it has read for an
agent or a job.

Safe to use from several threads at once.
"""

import os
import threading
from pathlib import Path
from typing import Final

FILES_MAX: Final = 1_000
"""Those that were read longest ago are dropped."""

_NOT_READ: Final = (0, 0)
"""The identity of no file."""

_lock: Final = threading.Lock()
_read: Final[dict[str, tuple[int, int]]] = {}
"""By path, in the order of their latest reads."""


def note(path: str, status: os.stat_result) -> None:
    """Remember a file from which a secret is read."""
    with _lock:
        _read.pop(path, None)
        _read[path] = status.st_dev, status.st_ino
        while len(_read) > FILES_MAX:
            del _read[next(iter(_read))]


def declare(path: str) -> None:
    """Remember a file from which a secret will be read, before it is."""
    with _lock:
        _read.setdefault(path, _NOT_READ)


def known(permitted: tuple[str, ...]) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the identities of each known file, by its path. Blocks for a look at each."""
    with _lock:
        read = dict(_read)
    found = {}
    for path in dict.fromkeys((*read, *permitted)):
        identities = {read[path]} if path in read else set()
        try:
            status = Path(path).stat()
        except OSError:
            pass
        else:
            identities.add((status.st_dev, status.st_ino))
        found[path] = frozenset(identities)
    return found
