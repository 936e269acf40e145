"""A disk of a few megabytes that a test can fill to the last byte: memory, mounted on a folder."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen

PIECE = b"\0" * 65_536
MOUNTS = Path("/proc/self/mounts")


@frozen
class SmallDisk:
    """One that is mounted at `folder`."""

    folder: Path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave not a byte until the block is left."""
        self._fill()
        try:
            yield
        finally:
            self._ballast.unlink()

    def _fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for piece in (PIECE, b"\0"):
                try:
                    while True:
                        file.write(piece)
                except OSError:
                    continue

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


@contextmanager
def small_disk(folder: Path, *, megabytes: int, user: int) -> Iterator[SmallDisk]:
    """Mount one on a new folder, for this system user; skips the test where that is not allowed."""
    folder.mkdir()
    options = f"size={megabytes}m,mode=700,uid={user}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        unmount_below(folder)


def unmount_below(directory: Path) -> None:
    """Unmount what is mounted at or below a directory, in use or not."""
    mounted = [Path(line.split()[1]) for line in MOUNTS.read_text().splitlines()]
    for place in mounted:
        if os.geteuid() == 0 and place.is_relative_to(directory):
            subprocess.run(["umount", "--lazy", str(place)], check=True)
