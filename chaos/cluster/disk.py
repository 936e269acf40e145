"""A run's own small disk, which can fill up: in memory, and only where mounting is permitted."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

CAP_SYS_ADMIN: Final = 21
MIB: Final = 1024**2
FILLING: Final = "filling"
MOUNT_WITHIN_S: Final = 10.0


class Disk:
    """A file system of a fixed size; `path` is a directory on it."""

    def __init__(self, path: Path, *, size_mib: int) -> None:
        self.path = path
        self._size_mib = size_mib

    def __enter__(self) -> Self:
        self.path.mkdir()
        size = f"size={self._size_mib}m,mode=0711"
        _run("mount", "-t", "tmpfs", "-o", size, "none", str(self.path))
        return self

    def __exit__(self, *_: object) -> None:
        unmount_below(self.path)

    def folder(self, name: str, *, owner: tuple[int, int]) -> Path:
        """Make a directory on it for its owner only, given as user and group."""
        made = self.path / name
        made.mkdir(mode=0o700)
        os.chown(made, *owner)
        return made

    @property
    def is_filled(self) -> bool:
        return (self.path / FILLING).exists()

    def fill(self) -> int:
        """Take all remaining space; return the number of bytes."""
        with (self.path / FILLING).open("wb") as file:
            while count := self._room():
                with suppress(OSError):  # others write meanwhile: take what is left now
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), count)
            return file.seek(0, os.SEEK_END)

    def free(self) -> None:
        """Release the space."""
        (self.path / FILLING).unlink(missing_ok=True)

    def _room(self) -> int:
        left = os.statvfs(self.path)
        return left.f_bavail * left.f_frsize


def missing() -> str | None:
    """Why this machine cannot have one; None if it can."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return "a separate file system needs Linux"
    (capabilities,) = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff")]
    may_mount = int(capabilities, 16) & 1 << CAP_SYS_ADMIN
    return None if may_mount else "a separate file system needs the right to mount one"


def unmount_below(folder: Path) -> None:
    """Unmount everything at or below a folder, also while it is in use."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return
    for line in mounts.read_text().splitlines():
        place = Path(line.split()[4])
        if place == folder or folder in place.parents:
            _run("umount", "--lazy", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=MOUNT_WITHIN_S)
