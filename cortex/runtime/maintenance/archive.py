"""Writes copies of what retention deletes: files of JSON lines, complete or not there at all.

A file gets its name once it is on the disk. A kill before the deletion leaves a complete file whose
records may be copied once more; nothing is lost.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from cortex.domain.errors import ArchiveError

SUFFIX: Final = ".jsonl"


def check(folder: str) -> None:
    """Raise `ArchiveError` for what is no folder here, or not writable. Blocks for a moment."""
    problem = ""
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):  # noqa: PTH116 -- `Path.stat` is no shorter
            problem = "it is not a folder"
        elif not os.access(folder, os.W_OK | os.X_OK):
            problem = "this user may not write there"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise _unwritable(folder, problem)


def write(folder: str, lines: Iterable[str], *, kind: str, at: datetime, new_id: UUID) -> Path:
    """Write one file, named by kind and time, into the day's folder; return its path.

    Blocks: call this in a thread. Raises `ArchiveError`, and leaves nothing behind.
    """
    day = Path(folder) / at.date().isoformat()
    time = at.time().isoformat("seconds").replace(":", "")
    name = f"{time}-{kind.lower()}-{new_id.hex[-12:]}{SUFFIX}"
    part = day / f".{name}.part"
    try:
        # The folder itself is not made: it may be a disk that is not mounted.
        day.mkdir(mode=0o700, exist_ok=True)
        _sync(Path(folder))
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as stream:
                for line in lines:
                    stream.write(line.encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            part.rename(day / name)
            _sync(day)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    return day / name


def _unwritable(folder: str, problem: str) -> ArchiveError:
    return ArchiveError(
        f"the archive {folder} cannot be written: {problem}",
        hint="nothing was deleted; make room or the folder, or set another: cortex retention set",
    )


def _sync(folder: Path) -> None:
    """Make names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
