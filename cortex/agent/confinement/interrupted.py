"""Folders in which a program ran while its pod died: searched later for what it may not leave.

While a program may write a folder, a file beside the job's workspace, where no program sees it,
says what stood there before, and its pod holds a lock on it. A file without a lock is of a pod that
has died. It is settled before the job's next tool call, and when a pod starts.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from cortex.agent.confinement.kept_names import Leftovers, Survey, quarantine, survey
from cortex.logger import Logger

ENDING: Final = ".running"
"""The suffix of the folder with these files: `<job>.running`."""

_log = Logger(__name__)


@attrs.define(eq=False)
class Mark:
    """The file of one program that runs."""

    path: Path
    number: int
    is_settled: bool = False

    @classmethod
    def made(cls, workspace: Path, folder: Path, before: Survey) -> "Mark":
        """Write it, before the program starts. Blocks. Raises OSError."""
        top = workspace.with_name(workspace.name + ENDING)
        top.mkdir(mode=0o700, exist_ok=True)
        path = top / secrets.token_hex(8)
        kept = {
            each: [at[1], own[1]]
            for each, known in before.kept.items()
            for at, own in [known.place]
        }
        text = orjson.dumps(
            {
                "folder": os.fsencode(folder).hex(),
                "kept": {os.fsencode(k).hex(): v for k, v in kept.items()},
            }
        )
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(number, text)
        except BaseException:
            os.close(number)
            path.unlink()
            raise
        return cls(path, number)

    def end(self) -> None:
        """Remove it if the folder was searched, and give up the lock."""
        if self.is_settled:
            self.path.unlink(missing_ok=True)
            with suppress(OSError):  # others of the same job still run
                self.path.parent.rmdir()
        os.close(self.number)


def owned(found: Survey, folder: Path, workspaces: Path, *, base: str) -> Survey:
    """Return a survey without what other programs may have made in the folder. Blocks.

    A program that runs there meanwhile could leave a name that this one's search would take for an
    old entry. So only what all of their marks know stays, and only if it still is there: what a
    program made that has ended by now has moved.
    """
    made: set[str] = set()
    with os.scandir(workspaces) as entries:
        tops = [each.path for each in entries if each.name.endswith(ENDING)]
    for path in (path for top in tops for path in _files(Path(top))):
        with suppress(OSError, ValueError):  # it has ended, or has not begun
            stored = orjson.loads(path.read_bytes())
            there = Path(os.fsdecode(bytes.fromhex(stored["folder"])))
            before = _stored_kept(stored)
            for each in found.kept:
                full = folder / each
                if not full.is_relative_to(there):
                    continue
                known = before.get(str(full.relative_to(there)))
                if known is None or known[1] != found.inode_of(each):
                    made.add(each)
    return found.without(made, base=base)


def settle(workspace: Path) -> str:
    """Search the folders of a job's programs whose pods died; return a note for people. Blocks."""
    top = workspace.with_name(workspace.name + ENDING)
    notes = [note for path in _files(top) if (note := _settled(path, workspace))]
    with suppress(OSError):
        top.rmdir()
    return "; ".join(notes)


def settle_all(workspaces: Path) -> None:
    """Do the same for all jobs that have a workspace here. Blocks."""
    for top in workspaces.glob(f"*{ENDING}"):
        workspace = top.with_name(top.name.removesuffix(ENDING))
        try:
            if note := settle(workspace):
                _log.warning(
                    "names in a folder moved after a pod's death", job=workspace.name, note=note
                )
        except OSError as error:
            _log.error("folder not searched", job=workspace.name, error=error.strerror)


def _files(top: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from top.iterdir()


def _settled(path: Path, workspace: Path) -> str:
    try:
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""  # its pod lives
        with suppress(ValueError):  # cut by the death: the program had not started
            note = _searched(orjson.loads(path.read_bytes()), workspace)
            path.unlink(missing_ok=True)
            return note
        path.unlink(missing_ok=True)
        return ""
    finally:
        os.close(number)


def _searched(stored: dict[str, Any], workspace: Path) -> str:
    folder = Path(os.fsdecode(bytes.fromhex(stored["folder"])))
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""  # gone
    try:
        now = survey(f"/proc/self/fd/{opened}")
        before = _stored_kept(stored)
        new = [
            path
            for path, known in now.kept.items()
            # Without the devices: their numbers change when a machine starts.
            if before.get(path) != tuple(inode for _, inode in known.place)
        ]
        unsearched = (str(folder),) if now.is_too_large else ()
        found = Leftovers(tuple(sorted(new)), (), unsearched)
        return quarantine(opened, str(workspace), found) if found else ""
    finally:
        os.close(opened)


def _stored_kept(stored: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {os.fsdecode(bytes.fromhex(k)): tuple(v) for k, v in stored["kept"].items()}
