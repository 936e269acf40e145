"""Decides whether and where an agent's programs may write in the folder that its job declares.

They may write everywhere but under the names that tools obey unasked: see `kept_names`. They may
not write at all where that cannot be enforced, or where the pod or its user would run or trust the
files.
"""

import functools
import os
import pwd
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from cortex.agent.confinement.kept_names import FOLDERS_MAX, GIT, Survey, kept_name, survey

MACHINE: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc"),
    *("/run", "/sbin", "/sys", "/usr", "/var/spool"),
)
"""Folders that the machine itself runs and trusts."""
SEARCHED: Final = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables with folders from which the pod runs programs or reads trusted files."""
GITLINK: Final = (0o160000).to_bytes(4, "big")
"""In a git index: a folder that contains another repository, or may contain one."""


FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@attrs.frozen
class Ground:
    """A folder, held open so that it cannot be replaced while a program starts."""

    number: int
    """The descriptor."""
    real: Path
    """Its real path, with all links resolved."""
    owner: int
    read_only: str | None
    """The reason why it may not be written."""
    survey: Survey

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.number}"

    @property
    def kept(self) -> list[str]:
        """Existing entries that may not be written."""
        return sorted(each for each in self.survey.kept if "/" not in each)

    @property
    def others(self) -> list[str]:
        """All other entries at the top."""
        names = os.listdir(self.number)  # noqa: PTH208 -- by its descriptor
        return sorted(each for each in names if each not in self.survey.kept)


def opened(folder: Path, hidden: Sequence[Path], secrets: Sequence[Path] = ()) -> Ground:
    """Open a folder and examine its contents; `secrets`: files that must not be seen.

    Blocks. Raises OSError.
    """
    number = _open(folder)
    try:
        real = Path(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115 -- not a path on disk
        reason = _way(folder) or reason_against(real, hidden)
        if reason is None and any(each.is_relative_to(real) for each in secrets):
            reason = "it holds a declared secret"
        found = Survey(0, {}, {}) if reason is not None else survey(f"/proc/self/fd/{number}")
        if reason is None:
            reason = _repositories(real, found)
        return Ground(number, real, os.fstat(number).st_uid, reason, found)
    except BaseException:
        os.close(number)
        raise


def reason_against(folder: Path, hidden: Sequence[Path]) -> str | None:
    """Return why programs must not write there; None if they may."""
    if any(each.is_relative_to(folder) or folder.is_relative_to(each) for each in hidden):
        return "Cortex keeps its data or settings there"
    if any(folder.is_relative_to(each) for each in (*MACHINE, sys.prefix, sys.base_prefix)):
        return "it is part of the system"
    if (trusted := _trusted_in(folder)) is not None:
        return f"it contains {trusted}, which programs are run from"
    return None


def _open(folder: Path) -> int:
    if _way(folder) is not None:
        return os.open(folder, FOLDER)
    here = os.open("/", os.O_PATH | FOLDER)
    for part in folder.parts[1:]:  # none of them may have become a link meanwhile
        above = here
        try:
            here = os.open(part, os.O_PATH | os.O_NOFOLLOW | FOLDER, dir_fd=above)
        finally:
            os.close(above)
    try:
        return os.open(".", FOLDER, dir_fd=here)
    finally:
        os.close(here)


def _way(folder: Path) -> str | None:
    is_plain = str(folder) == os.path.realpath(folder)
    return None if is_plain else "its path leads through a symlink"


def _trusted_in(folder: Path) -> str | None:
    """Return a file in the folder that this process may run, or a user's home folder."""
    files = [getattr(each, "__file__", None) or "" for each in [*sys.modules.values()]]
    code = {each.rpartition("/")[0] for each in files}
    searched = [part for name in SEARCHED for part in os.environ.get(name, "").split(os.pathsep)]
    homes = [str(Path.home()), *(each.pw_dir for each in pwd.getpwall())]
    top = "/" if folder == Path("/") else f"{folder}/"
    for path in {*sys.path, sys.prefix, sys.base_prefix, *searched, *code, *homes}:
        if path.startswith("/") and f"{_real(path)}/".startswith(top):
            return path
    return None


_real = functools.lru_cache(1000)(os.path.realpath)


def _repositories(folder: Path, found: Survey) -> str | None:
    """Return what keeps the names of `kept_names` from being kept in a folder."""
    for each in (folder, *folder.parents):
        if os.path.lexists(each / GIT):
            if _has_gitlinks(each / GIT):
                return f"the repository in {each} has submodules"
            break
    if found.is_too_large:
        return f"it has more than {FOLDERS_MAX:,} folders"
    for path in found.kept:
        if "/" not in path and (folder / path).is_symlink():
            return f"its {path} is a symlink"
        if "/" in path and kept_name(path.rpartition("/")[2]) == GIT:
            return f"another repository is in {folder / path.rpartition('/')[0]}"
    return None


def _has_gitlinks(place: Path) -> bool:
    try:
        if stat.S_ISREG(place.lstat().st_mode):
            inner = place.read_text("utf-8", "surrogateescape").removeprefix("gitdir: ").rstrip()
            place = (place.parent / inner).resolve()
        indices = [place / "index", *place.glob("sharedindex.*")]
        return any(GITLINK in each.read_bytes() for each in indices if each.exists())
    except OSError:
        return True
