"""Decides whether and where an agent's programs may write in the folder that its job declares.

They may write everywhere but under the names that tools obey unasked: see `kept_names`. They may
not write at all where that cannot be enforced, or where the pod or its user would run or trust the
files.
"""

import functools
import os
import pwd
import re
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
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
_SETTING: Final = re.compile(
    r"^[ \t]*(?:\[[^\]\n]*\][ \t]*)?(hookspath|path|attributesfile|fsmonitor|sshcommand|clean"
    r"|smudge|process|textconv|driver|program|pager|editor)[ \t]*=[ \t]*([^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of git's settings that names a program, hooks or further settings."""


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
    if (around := _around(folder)) is not None:
        return around
    if found.is_too_large:
        return f"it has more than {FOLDERS_MAX:,} folders"
    for path in found.kept:
        if "/" not in path and (folder / path).is_symlink():
            return f"its {path} is a symlink"
        if "/" in path and kept_name(path.rpartition("/")[2]) == GIT:
            return f"another repository is in {folder / path.rpartition('/')[0]}"
    return None


def _around(folder: Path) -> str | None:
    """Return what speaks against writing in a folder by the repository that it is in."""
    for each in (folder, *folder.parents):
        if os.path.lexists(each / GIT):
            if _has_gitlinks(each / GIT):
                return f"the repository in {each} has submodules"
            if (obeyed := _obeyed(each, folder)) is not None:
                return f"git obeys {obeyed}, by the settings of the repository in {each}"
            return None
        if kept_name(each.name) is not None:
            return f"it is in {each}, which tools obey unasked"
    return None


def _obeyed(root: Path, folder: Path) -> str | None:
    """Return what git runs or reads by the settings of a repository, if programs could write it.

    Such as the folder of its hooks, or further settings; kept names are kept anyway.
    """
    place = _place_of(root / GIT)
    common = place / "commondir"
    with suppress(OSError):
        place = (place / common.read_text("utf-8", "surrogateescape").rstrip()).resolve()
    for file in (place / "config", _place_of(root / GIT) / "config.worktree"):
        try:
            text = file.read_text("utf-8", "surrogateescape")
        except OSError:
            continue
        for key, value in _SETTING.findall(text):
            # Hooks and programs start at the top; what is included is beside the settings.
            top = file.parent if key.lower() == "path" else root
            for word in value.replace('"', " ").split():
                path: str = os.path.realpath(top / os.path.expanduser(word))  # noqa: PTH111 -- anybody's
                if _is_written(Path(path), folder, key.lower()):
                    return path
    return None


def _is_written(path: Path, folder: Path, key: str) -> bool:
    """Return whether programs in a folder could write what git obeys at a path."""
    if key == "hookspath" and folder.is_relative_to(path):
        return True
    if not path.is_relative_to(folder) or any(map(kept_name, path.relative_to(folder).parts)):
        return False
    return key in {"path", "hookspath"} or path.is_file()


def _place_of(place: Path) -> Path:
    """Return the repository's own folder: `.git` may be a file that names it."""
    if stat.S_ISREG(place.lstat().st_mode):
        inner = place.read_text("utf-8", "surrogateescape").removeprefix("gitdir: ").rstrip()
        return (place.parent / inner).resolve()
    return place


def _has_gitlinks(place: Path) -> bool:
    try:
        place = _place_of(place)
        indices = [place / "index", *place.glob("sharedindex.*")]
        return any(GITLINK in each.read_bytes() for each in indices if each.exists())
    except OSError:
        return True
