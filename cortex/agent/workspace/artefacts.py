"""Finds files that an interrupted step left in its job's workspace, and sets them aside."""

import contextlib
import ctypes
import heapq
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from cortex.agent.workspace import timeout_lines
from cortex.agent.workspace.jail import open_folder
from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.domain.timeouts import LISTED_MAX, Artefact

VISITED_MAX: Final = 50_000
DEPTH_MAX: Final = 40
WORK_TREES_MAX: Final = 4
CLOCK_STEP_S: Final = 0.02
"""The kernel's clock for file times lags by up to one of its ticks."""
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_BTIME: Final = 0x800


@attrs.frozen(kw_only=True)
class ArtefactScan:
    """Changed files and git work trees of a workspace."""

    artefacts: tuple[Artefact, ...] = ()
    """Files changed since the instant, the newest first, outside of git work trees."""
    work_trees: tuple[Path, ...] = ()
    """Roots of the git work trees below it: git itself lists their changes."""
    problem: str | None = None
    """Why this is incomplete."""


def look_through(workspace: Path, *, since: datetime) -> ArtefactScan:
    """Find what changed in a workspace since an instant of this machine's clock.

    Blocks: call this in a thread. Follows no symlink; a missing workspace is empty.
    """
    newest: list[tuple[float, int, Artefact]] = []
    work_trees: list[Path] = []
    problems: list[str] = []
    since_s = since.timestamp() - CLOCK_STEP_S
    for number, found in enumerate(_walk(workspace, problems)):
        if number >= VISITED_MAX:
            problems.append(f"the workspace holds more than {VISITED_MAX} files")
            break
        if isinstance(found, Path):
            work_trees.append(found)
        elif found.artefact.changed_at.timestamp() >= since_s:
            born_s = found.born_s
            # Without the tolerance: a file that a step wrote just before its commit is not new.
            is_new = born_s is not None and born_s > since.timestamp()
            artefact = attrs.evolve(found.artefact, is_new=is_new)
            entry = (artefact.changed_at.timestamp(), number, artefact)
            (heapq.heappushpop if len(newest) >= LISTED_MAX else heapq.heappush)(newest, entry)
    if len(work_trees) > WORK_TREES_MAX:
        problems.append(f"the workspace holds {len(work_trees)} git work trees")
    return ArtefactScan(
        artefacts=tuple(each for *_, each in sorted(newest, reverse=True)),
        work_trees=tuple(work_trees[:WORK_TREES_MAX]),
        problem=problems[0] if problems else None,
    )


def set_aside(workspace: Path, artefacts: Sequence[Artefact], *, into: Path) -> list[str]:
    """Move these files from the workspace to the same places below `into`; return those moved.

    `into` is made and must not exist yet: nothing is ever overwritten. Files that are gone already,
    or that are reached only through a symlink, are skipped.
    """
    moved: list[str] = []
    into.mkdir(parents=True)
    for artefact in artefacts:
        *outer, name = artefact.path.split("/")
        if ".." in (*outer, name):
            continue
        with contextlib.suppress(NotFoundError, ForbiddenError, FileNotFoundError):
            with (
                open_folder(workspace, tuple(outer)) as source,
                open_folder(into, tuple(outer), create=True) as target,
            ):
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                moved.append(artefact.path)
    return moved


def printable(path: str) -> str:
    """Decode a file name: names are bytes; what is not UTF-8 in them becomes U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


@attrs.frozen
class _File:
    artefact: Artefact
    born_s: float | None
    """When its inode was made; None if the file system does not record it."""


def _walk(workspace: Path, problems: list[str]) -> Iterator[_File | Path]:
    """Yield each regular file outside of git work trees, and the root of each of those trees."""

    def add_problem(error: OSError) -> None:
        problems.append(f"the workspace cannot be read: {error.strerror}")

    try:
        root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        add_problem(error)
        return
    try:
        for top, folders, files, here in os.fwalk(dir_fd=root, onerror=add_problem):
            outer = [part for part in top.split("/") if part not in ("", ".")]
            if ".git" in (*folders, *files):
                folders.clear()
                yield workspace.joinpath(*outer)
                continue
            if len(outer) >= DEPTH_MAX and folders:
                folders.clear()
                problems.append(f"the workspace is more than {DEPTH_MAX} folders deep")
            own = (timeout_lines.NAME,) if not outer else ()  # no step has written it
            names = (name for name in files if name not in own)
            yield from (each for name in names if (each := _file(here, [*outer, name])))
    except OSError as error:
        add_problem(error)
    finally:
        os.close(root)


def _file(folder: int, parts: list[str]) -> _File | None:
    try:
        status = os.lstat(parts[-1], dir_fd=folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    artefact = Artefact(
        path=printable("/".join(parts)),
        size_bytes=status.st_size,
        changed_at=datetime.fromtimestamp(status.st_ctime, UTC),
    )
    return _File(artefact, _born_s(folder, parts[-1], status))


def _born_s(folder: int, name: str, status: os.stat_result) -> float | None:
    """When a file was made. Linux has it in statx(2) only, which this Python does not offer."""
    born: float | None = getattr(status, "st_birthtime", None)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if born is not None or statx is None:
        return born
    answer = ctypes.create_string_buffer(256)  # struct statx
    if statx(folder, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, answer) != 0:
        return None
    (mask,) = struct.unpack_from("I", answer, 0)
    seconds, nanoseconds = struct.unpack_from("qI", answer, 80)
    return seconds + nanoseconds / 1e9 if mask & _STATX_BTIME else None
