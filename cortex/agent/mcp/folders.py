"""The folders of programs that serve MCP: held while in use, removed later if their pod was killed.

Invariants: a folder of a living process is never removed, also if that process is in another
container with the same temporary folder: the process holds a lock on it until it ends. Only folders
of this user are removed, and no link is followed.

On failure: what cannot be removed stays; a later pod tries again.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cortex.domain.clock import system_chance

PREFIX: Final = "cortex-mcp-"
YOUNG_S: Final = 60.0
"""A younger folder may be one that its process has not locked yet."""
REMOVED_MAX: Final = 1_000
"""Number of folders that one process removes."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def held_folder() -> Iterator[Path]:
    """Make a folder that is removed at the end, or by a later pod if this process is killed."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as made:
        held = os.open(made, _FOLDER)
        try:
            with suppress(OSError):  # no locks here: then no other pod can lock it either
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(made)
        finally:
            os.close(held)


def remove_left_behind(*, young_s: float = YOUNG_S) -> int:
    """Remove the folders of processes that are gone; return how many. Blocks."""
    count = 0
    try:
        parent = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0  # the pod reports this by itself: see `surroundings`
    try:
        with os.scandir(parent) as entries:
            names = [each.name for each in entries if each.name.startswith(PREFIX)]
        for name in names:
            if count >= REMOVED_MAX:
                break
            with suppress(OSError):
                count += _removed(parent, name, young_s=young_s)
    finally:
        os.close(parent)
    return count


def _removed(parent: int, name: str, *, young_s: float) -> bool:
    """Remove one folder. Raises `OSError` if a process holds it, or if it cannot be removed."""
    opened = os.open(name, _FOLDER, dir_fd=parent)
    try:
        found = os.fstat(opened)
        if (
            found.st_uid != os.geteuid()
            or system_chance().unix_ms() / 1000 - found.st_ctime < young_s
        ):
            return False
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # By the open folder, not by its name, which may be another one's by now.
        with os.scandir(opened) as entries:
            inner = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
        for each, is_folder in inner:
            if is_folder:
                shutil.rmtree(each, dir_fd=opened)
            else:
                os.unlink(each, dir_fd=opened)
        os.rmdir(name, dir_fd=parent)
    finally:
        os.close(opened)
    return True
