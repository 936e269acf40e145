"""Where files with declared secrets are, so that no confined program sees them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cortex.domain.errors import RejectedError
from cortex.http_client.secret_values import secret_files_known

ENTRIES_MAX: Final = 500_000
"""A folder with more is not searched for further links to a secret's file."""


def secret_paths(shown: Sequence[Path]) -> tuple[Path, ...]:
    """Return the real paths of declared secrets, and of hard links to them in `shown` folders.

    Blocks; a file with several names has these folders searched. Raises `RejectedError` if that is
    too much.
    """
    found: dict[Path, None] = {}
    linked: set[tuple[int, int]] = set()
    for name, identities in secret_files_known().items():
        path = Path(os.path.realpath(name))
        found[path] = None
        try:
            if path.stat().st_nlink > 1:
                linked |= identities
        except OSError:
            continue
    if linked:
        for folder in shown:
            found |= dict.fromkeys(_links(folder.resolve(), linked))
    return tuple(found)


def _links(folder: Path, identities: set[tuple[int, int]]) -> Iterator[Path]:
    inodes = {inode for _, inode in identities}
    left, count = [str(folder)], 0
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.inode() in inodes and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if (status.st_dev, status.st_ino) in identities:
                            yield Path(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        except OSError:
            continue  # closed to this user, and so to its programs
        if count > ENTRIES_MAX:
            raise RejectedError(
                f"folder {folder} has too many files to be searched for links to a secret",
                hint="keep the secret in a file that has one name",
            )
