"""Checks that the repository of a work tree is its own: one that a model wrote may name another's.

Git follows a `.git` file, `commondir` and symlinks wherever they lead, and writes there.
"""

import os
from pathlib import Path
from typing import Final

from cortex.domain.errors import RejectedError

POINTER: Final = "gitdir: "
POINTER_BYTES_MAX: Final = 8_192
WRITTEN: Final = ("refs", "logs", "objects", "reftable")
"""Folders in which git writes when it reads a work tree or stashes work."""
READ_ONLY: Final = frozenset({"hooks", "info", "description"})
"""People link these to elsewhere; git does not write them."""


def require_own(root: Path) -> None:
    """Raise `RejectedError` unless the repository at `root` is its own. Blocks."""
    try:
        _require_own(root)
    except (OSError, ValueError, RuntimeError) as error:
        raise RejectedError(f"its repository cannot be read: {error}") from error


def owner_of(root: Path) -> int | None:
    """Return the user to run git as, None for this process's: root runs it as the owner.

    Git then refuses a repository of several owners, and programs that it runs do not have root's
    rights.
    """
    if os.geteuid() != 0:
        return None
    return (root / ".git").lstat().st_uid or None


def _require_own(root: Path) -> None:
    place = root / ".git"
    if place.is_symlink():
        raise RejectedError("its .git is a symlink")
    if place.is_dir():
        if os.path.lexists(place / "commondir"):
            raise RejectedError("it shares another repository")
        _refuse_links(place)
        return
    inner = (root / _pointed(place, POINTER)).resolve(strict=True)
    if os.path.lexists(inner / "gitdir"):  # of a linked work tree: the repository points back
        common = (inner / _pointed(inner / "commondir")).resolve(strict=True)
        back = (inner / _pointed(inner / "gitdir")).resolve()
        if back != place or inner.parent != common / "worktrees":
            raise RejectedError("its repository belongs to another work tree")
        _refuse_links(common)
    elif os.path.lexists(inner / "commondir") or not _names(inner, root):
        raise RejectedError("its repository belongs to another work tree")
    _refuse_links(inner)


def _pointed(file: Path, prefix: str = "") -> str:
    if file.is_symlink() or not file.is_file():
        raise RejectedError(f"{file.name} in its repository is not a file")
    with file.open(encoding="utf-8", errors="surrogateescape") as reader:
        text = reader.read(POINTER_BYTES_MAX).rstrip("\r\n")
    if not text.startswith(prefix):
        raise RejectedError(f"{file.name} is not in git's format")
    return text.removeprefix(prefix)


def _names(inner: Path, root: Path) -> bool:
    """Return whether the repository of a submodule names this work tree."""
    for line in (inner / "config").read_text("utf-8", "surrogateescape").splitlines():
        name, _, value = line.partition("=")
        if name.strip().lower() == "worktree":
            return (inner / value.strip().strip('"')).resolve() == root
    return False


def _refuse_links(folder: Path) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.name not in READ_ONLY:
                raise RejectedError(f"{entry.name} in its repository is a symlink")
    for top in WRITTEN:
        for here, folders, files in os.walk(folder / top):
            for name in (*folders, *(() if top == "objects" else files)):
                if os.path.islink(f"{here}/{name}"):  # noqa: PTH114 -- of many files
                    raise RejectedError(f"{top}/…/{name} in its repository is a symlink")
