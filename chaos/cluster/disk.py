"""A small disk of a run's own, which can be full: in memory, and only where one may mount."""

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
        """A directory on it for nobody but its owner, told as user and group."""
        made = self.path / name
        made.mkdir(mode=0o700)
        os.chown(made, *owner)
        return made

    @property
    def is_filled(self) -> bool:
        """By `fill`."""
        return (self.path / FILLING).exists()

    def fill(self) -> int:
        """Take all the room that is left; how many bytes."""
        with (self.path / FILLING).open("wb") as file:
            while count := self._room():
                with suppress(OSError):  # others write meanwhile: then with what there is now
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), count)
            return file.seek(0, os.SEEK_END)

    def free(self) -> None:
        """Give it back."""
        (self.path / FILLING).unlink(missing_ok=True)

    def _room(self) -> int:
        left = os.statvfs(self.path)
        return left.f_bavail * left.f_frsize


def missing() -> str | None:
    """Why there can be none on this machine; None: there can."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return "a file system of its own is for Linux"
    (capabilities,) = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff")]
    may_mount = int(capabilities, 16) & 1 << CAP_SYS_ADMIN
    return None if may_mount else "a file system of its own takes the right to mount one"


def unmount_below(folder: Path) -> None:
    """Take away what is mounted at a folder or below it, also while it is in use."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return
    for line in mounts.read_text().splitlines():
        place = Path(line.split()[4])
        if place == folder or folder in place.parents:
            _run("umount", "--lazy", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=MOUNT_WITHIN_S)
