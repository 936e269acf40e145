"""How much disk the workspace of one job may take, in bytes and in files.

Counted is what its files occupy, at each write of a tool and, by the supervisor of a program, while
that runs. Not counted are files that were removed while a program still has them open: the limit of
free disk bounds these.
"""

import os
from pathlib import Path
from typing import Final

import attrs

from cortex.domain.errors import RejectedError

MIB: Final = 1 << 20
BYTES_MAX: Final = 1024 * MIB
FILES_MAX: Final = 100_000
"""Files and folders."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system."""
WRITABLE_MIN: Final = 16 * MIB
"""A program may write files of this size also when little is left: elsewhere than here."""


@attrs.frozen
class Quota:
    """The limits of one workspace."""

    bytes_max: int = BYTES_MAX
    files_max: int = FILES_MAX

    def check(self, workspace: Path, more_bytes: int, *, what: str) -> None:
        """Raise `RejectedError` if that much more does not fit. Blocks: it looks at each file."""
        used = used_by(workspace, files_max=self.files_max)
        if used.files >= self.files_max:
            raise RejectedError(
                f"{what}: the job's workspace has {self.files_max:,} files already", hint=_HINT
            )
        if used.bytes + more_bytes > self.bytes_max:
            raise RejectedError(
                f"{what}: {more_bytes:,} bytes more do not fit into the job's workspace, which has "
                f"{used.bytes:,} of {self.bytes_max:,}",
                hint=_HINT,
            )


_HINT: Final = "remove files that are not needed, with run_command"


@attrs.frozen
class Used:
    """The disk space and the number of files that a workspace uses."""

    bytes: int
    files: int


def used_by(workspace: Path, *, files_max: int = FILES_MAX) -> Used:
    """Count the files below a folder, no more than the limit. A missing folder is empty. Blocks."""
    nbytes = files = 0
    left = [str(workspace)]
    while left and files < files_max:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    files += 1
                    try:
                        nbytes += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                        if entry.is_dir(follow_symlinks=False):
                            left.append(entry.path)
                    except FileNotFoundError:
                        continue
        except OSError:
            continue  # gone, or closed by a program to its own user: its supervisor ends those
    return Used(nbytes, files)
