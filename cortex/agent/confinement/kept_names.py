"""Names in a declared folder that programs of agents neither write nor create, at any depth.

A tool of the person whose folder it is obeys files of these names unasked: as soon as somebody
enters, opens, commits or pushes there. So a program that could leave one would act as that person.

Owns: nothing. Reads: the folder before a program starts and after it has ended. Writes: what is new
under these names moves to the job's workspace, where no tool looks. Invariants: no link is
followed; a folder that cannot be searched moves as a whole. All processes of the program have ended
by then; an entry that somebody else makes meanwhile under such a name moves, too.
"""

import errno
import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from cortex.domain.clock import system_chance
from cortex.domain.safe import safe
from cortex.logger import Logger

KEPT: Final[Mapping[str, str]] = {
    ".git": "git runs its hooks and obeys its settings",
    ".gitattributes": "git runs filters and drivers for what it names",
    ".gitmodules": "git fetches what it names",
    ".githooks": "git is often set to run them",
    ".husky": "git runs them on commit",
    ".pre-commit-config.yaml": "git runs what it names on commit",
    **dict.fromkeys(
        (
            f"{dot}lefthook{local}.{ending}"
            for dot in ("", ".")
            for local in ("", "-local")
            for ending in ("yml", "yaml", "toml", "json")
        ),
        "git runs what it names on commit",
    ),
    ".lefthook": "git runs its scripts on commit",
    ".lefthook-local": "git runs its scripts on commit",
    ".overcommit.yml": "git runs what it names on commit",
    ".hg": "Mercurial runs its hooks",
    ".jj": "Jujutsu obeys its settings",
    "cortex.toml": "Cortex obeys it",
    ".envrc": "direnv runs it when a shell enters",
    ".mise.toml": "mise obeys it when a shell enters",
    "mise.toml": "mise obeys it when a shell enters",
    ".mise.local.toml": "mise obeys it when a shell enters",
    "mise.local.toml": "mise obeys it when a shell enters",
    ".mise": "mise obeys it when a shell enters",
    ".rtx.toml": "mise obeys it when a shell enters",
    ".tool-versions": "version managers obey it when a shell enters",
    ".vscode": "editors run its tasks when the folder is opened",
    ".devcontainer": "editors run it when the folder is opened",
    ".devcontainer.json": "editors run it when the folder is opened",
    ".idea": "editors run its configurations",
    ".fleet": "an editor runs its configurations",
    ".vs": "an editor runs its tasks when the folder is opened",
    ".zed": "an editor obeys it",
    ".cursor": "an editor's agent obeys it",
    ".windsurf": "an editor's agent obeys it",
    ".kiro": "an editor's agent runs its hooks",
    ".roo": "an editor's agent starts the servers that it names",
    ".continue": "an editor's agent starts the servers that it names",
    ".amazonq": "an agent starts the servers that it names",
    ".claude": "an agent runs its hooks",
    ".codex": "an agent starts the servers that it names",
    ".gemini": "an agent starts the servers that it names",
    ".qwen": "an agent starts the servers that it names",
    ".opencode": "an agent runs its plugins",
    "opencode.json": "an agent starts the servers that it names",
    "opencode.jsonc": "an agent starts the servers that it names",
    ".aider.conf.yml": "an agent runs what it names after each change",
    ".mcp.json": "agents start the servers that it names",
    ".exrc": "vi runs it",
    "_exrc": "vi runs it",
    ".vimrc": "vi runs it",
    "_vimrc": "vi runs it",
    ".gvimrc": "vi runs it",
    ".nvim.lua": "Neovim runs it",
    ".nvimrc": "Neovim runs it",
    ".dir-locals.el": "Emacs evaluates it",
    ".dir-locals-2.el": "Emacs evaluates it",
    ".gdbinit": "gdb runs it",
    ".lldbinit": "lldb runs it",
    ".pdbrc": "Python's debugger runs it",
    ".rprofile": "R runs it",
    ".ghci": "ghci runs it",
    ".irbrc": "irb runs it",
    ".pryrc": "pry runs it",
    ".npmrc": "npm takes registries and scripts from it",
    ".yarnrc": "yarn runs what it names",
    ".yarnrc.yml": "yarn runs what it names",
    ".pnpmfile.cjs": "pnpm runs it",
    ".pnpmfile.mjs": "pnpm runs it",
    "bunfig.toml": "bun runs what it names",
    ".bundle": "bundler takes places of code from it",
    ".mvn": "maven runs the extensions that it names",
    ".cargo": "cargo runs the wrappers that it names",
    ".bazelrc": "bazel obeys it",
    ".github": "runs with the repository's secrets once it is pushed",
    ".gitlab-ci.yml": "runs with the repository's secrets once it is pushed",
    ".gitea": "runs with the repository's secrets once it is pushed",
    ".forgejo": "runs with the repository's secrets once it is pushed",
    **dict.fromkeys(
        (
            *(".gitlab", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml", ".drone.yml"),
            *("bitbucket-pipelines.yml", ".cirrus.yml", ".semaphore", ".appveyor.yml"),
            *("appveyor.yml", ".teamcity", ".tekton"),
        ),
        "runs with the repository's secrets once it is pushed",
    ),
    ".circleci": "runs with the repository's secrets once it is pushed",
    ".buildkite": "runs with the repository's secrets once it is pushed",
    ".travis.yml": "runs with the repository's secrets once it is pushed",
    "azure-pipelines.yml": "runs with the repository's secrets once it is pushed",
    "jenkinsfile": "runs with the repository's secrets once it is pushed",
}
"""The reason for each name, in lower case. Files that a person starts by name, such as a Makefile,
and texts that agents read, such as AGENTS.md, are left out."""
GIT: Final = ".git"
HEAD: Final = "head"
BARE: Final = frozenset({"objects", "refs"})
COMMON: Final = "commondir"
"""A folder with HEAD and the two of `BARE`, or with HEAD and this, which names another folder with
the two, is a repository: git obeys its settings. In lower case, since some file systems fold it."""
ACROSS_BYTES_MAX: Final = 256 << 20
ACROSS_ENTRIES_MAX: Final = 20_000
"""Copied to the workspace on another disk after one program. More stays in the folder under a
harmless name, closed: a program could else make the pod copy for hours and fill that disk."""
FOLDERS_MAX: Final = 100_000
"""Programs may not write in a folder that contains more folders. If they create more, only the
topmost ones are moved."""
INNER_MAX: Final = 200
"""Entries inside an existing one that are looked at for changes."""
LISTED_MAX: Final = 20
CLOCK_STEP_NS: Final = 2_100_000_000
"""A folder that changed so shortly before may change again without a trace: some file systems
count time in seconds, or in steps of two."""

_NO_FOLLOW: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
_SHORT: Final = {"git~1": GIT}
"""How Windows shortens it."""
_OF_REPOSITORY: Final = BARE | {HEAD, COMMON}
_FIRST: Final = frozenset(each[0] for each in KEPT) | {"g"}

_log = Logger(__name__)
Identity = tuple[int, int]


def kept_name(name: str) -> str | None:
    """Return the kept name that some file system takes this one for; None: it is none."""
    if name.isascii():
        if name[:1].lower() not in _FIRST:
            return None
        folded = name.lower()
    else:  # HFS+ ignores some characters, and APFS treats composed and decomposed letters alike
        shown = unicodedata.normalize("NFKC", name)
        folded = "".join(each for each in shown if unicodedata.category(each) != "Cf").casefold()
    folded = folded.rstrip(". ")  # Windows ignores these
    folded = _SHORT.get(folded, folded)
    return folded if folded in KEPT else None


@attrs.frozen
class _Known:
    """An entry of a kept name as it was."""

    place: tuple[Identity, Identity]
    """The folder's, and its own."""
    state: tuple[int, ...]


@attrs.frozen
class Survey:
    """A folder before a program starts."""

    at_ns: int
    folders: Mapping[str, tuple[Identity, int]]
    """Identity and time of change of each, by its path; the first is the folder itself."""
    kept: Mapping[str, _Known]

    @property
    def is_too_large(self) -> bool:
        return len(self.folders) > FOLDERS_MAX

    def inode_of(self, path: str) -> int:
        """Return the number of an entry of a kept name."""
        return self.kept[path].place[1][1]

    def without(self, made: Collection[str], *, base: str) -> "Survey":
        """Return it without these entries, and without those that are gone by now. Blocks."""
        kept = {
            path: known
            for path, known in self.kept.items()
            if path not in made and _is(base, path, known.place[1])
        }
        return attrs.evolve(self, kept=kept)


def survey(base: str) -> Survey:
    """Look through the folder at `base`; stops where it is too large. Blocks."""
    at_ns = system_chance().unix_ms() * 1_000_000
    folders: dict[str, tuple[Identity, int]] = {}
    kept: dict[str, _Known] = {}
    left = [""]
    while left and len(folders) <= FOLDERS_MAX:
        path = left.pop()
        try:
            status = os.lstat(f"{base}/{path}")
            inner, names = _entries(base, path)
        except OSError:
            continue  # gone, or closed to this user and so to its programs
        here = status.st_dev, status.st_ino
        folders[path] = here, status.st_ctime_ns
        for each in names:
            if (known := _known(base, each, here)) is not None:
                kept[each] = known
        left += inner
    return Survey(at_ns, folders, kept)


@attrs.frozen
class Leftovers:
    """Entries that a program left under names that it may not use."""

    new: tuple[str, ...] = ()
    """Paths in the folder."""
    changed: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.unsearched)


def leftovers(base: str, before: Survey) -> Leftovers:
    """Compare the folder with what it was. Blocks; takes a time by folders that it has.

    Only folders that have changed are read: a new entry is a change of its folder.
    """
    search = _Search(base, before)
    search.run()
    return Leftovers(
        tuple(sorted({*search.new})), tuple(search.changed()), tuple(search.unsearched)
    )


class _Search:
    def __init__(self, base: str, before: Survey) -> None:
        self.base, self.before = base, before
        self.new: list[str] = []
        self.unsearched: list[str] = []
        self._valid: set[str] = set()
        self._left: list[tuple[str, str]] = []
        """New folders, each with the topmost new one around it."""

    def run(self) -> None:
        for path, (identity, changed_ns) in self.before.folders.items():
            if path and _above(path) not in self._valid:
                continue  # a link may stand in its way now
            try:
                status = os.lstat(f"{self.base}/{path}")
            except OSError:
                continue
            if (status.st_dev, status.st_ino) != identity or not stat.S_ISDIR(status.st_mode):
                continue  # another one: its folder has changed
            self._valid.add(path)
            is_same = status.st_ctime_ns == changed_ns < self.before.at_ns - CLOCK_STEP_NS
            if not is_same:
                self._read(path, identity, topmost=None)
        count = 0
        while self._left:
            path, topmost = self._left.pop()
            count += 1
            if count > FOLDERS_MAX:
                self.new += dict.fromkeys(each for _, each in ((path, topmost), *self._left))
                return
            self._read(path, None, topmost=topmost)

    def _read(self, path: str, here: Identity | None, *, topmost: str | None) -> None:
        try:
            inner, names = _entries(self.base, path)
        except PermissionError:
            try:
                _open_up(self.base, path)
                inner, names = _entries(self.base, path)
            except OSError:
                self._give_up(path, topmost)
                return
        except OSError:
            self._give_up(path, topmost)
            return
        for each in names:
            known = self.before.kept.get(each)
            now = None if here is None else _known(self.base, each, here)
            if known is None or now is None or now.place != known.place:
                self.new.append(each)
        for each in inner:
            known_folder = self.before.folders.get(each)
            if here is None or known_folder is None or not _is(self.base, each, known_folder[0]):
                self._left.append((each, topmost or each))

    def _give_up(self, path: str, topmost: str | None) -> None:
        (self.unsearched if topmost is None else self.new).append(
            path if topmost is None else topmost
        )

    def changed(self) -> Iterator[str]:
        """Yield what has changed below; at the top they are read-only."""
        for path, known in self.before.kept.items():
            if "/" not in path or _above(path) not in self._valid:
                continue
            now = _known(self.base, path, known.place[0])
            if now is not None and now.place == known.place and now.state != known.state:
                yield path


def _is(base: str, path: str, identity: Identity) -> bool:
    with suppress(OSError):
        status = os.lstat(f"{base}/{path}")
        return (status.st_dev, status.st_ino) == identity
    return False


def _entries(base: str, path: str) -> tuple[list[str], list[str]]:
    """Return the folders in a folder, and what has a kept name; both as paths from `base`."""
    folders, kept, heads, parts = [], [], [], set()
    with os.scandir(f"{base}/{path}") as entries:
        for entry in entries:
            name = entry.name
            if kept_name(name) is not None:
                kept.append(f"{path}/{name}" if path else name)
                continue
            if (folded := name.lower()) in _OF_REPOSITORY:
                parts.add(folded)
                if folded == HEAD:
                    heads.append(name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{path}/{name}" if path else name)
    if COMMON in parts or parts >= BARE:
        kept += [f"{path}/{each}" if path else each for each in heads]
    return folders, kept


def _known(base: str, path: str, here: Identity) -> _Known | None:
    try:
        status = os.lstat(f"{base}/{path}")
    except OSError:
        return None
    state = [status.st_ctime_ns, status.st_size]
    if stat.S_ISDIR(status.st_mode):
        for count, (top, folders, files) in enumerate(os.walk(f"{base}/{path}")):
            for name in (*folders, *files)[:INNER_MAX]:
                with suppress(OSError):
                    state.append(os.lstat(f"{top}/{name}").st_ctime_ns)
            if count >= INNER_MAX or len(state) >= INNER_MAX or kept_name(path) == GIT:
                break
    return _Known((here, (status.st_dev, status.st_ino)), tuple(state))


def _above(path: str) -> str:
    return path.rpartition("/")[0]


# --- moving them away


def quarantine(number: int, workspace: str, found: Leftovers) -> str:
    """Move what is new in the open folder to the workspace; return a note for the model. Blocks."""
    notes = []
    if found.new:
        moved, renamed, stuck = _moved(number, workspace, found.new)
        if moved:
            into = moved[0][1].partition("/")[0]
            notes.append(
                f"moved to {into} in the workspace, since programs may not create such names in "
                f"the folder: {_listed([path for path, _ in moved])}"
            )
        if renamed:
            notes.append(
                "too large for the disk of the workspace, and closed under another name: "
                f"{_listed(renamed)}"
            )
        if stuck:
            _log.error("kept names not moved", paths=stuck[:LISTED_MAX])
            notes.append(f"not allowed in the folder, and not moved: {_listed(stuck)}")
    if found.changed:
        notes.append(f"changed, although programs may not: {_listed(found.changed)}")
    if found.unsearched:
        notes.append(f"not searched for such names: {_listed(found.unsearched)}")
    return "; ".join(notes)


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(
        safe(os.fsencode(each).decode(errors="replace")) for each in paths[:LISTED_MAX]
    )
    more = len(paths) - LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _moved(
    number: int, workspace: str, paths: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Return what has moved, each with its place in the workspace; what was renamed; the rest."""
    moved: list[tuple[str, str]] = []
    renamed: list[str] = []
    stuck: list[str] = []
    room = _Room()
    name = f"quarantine-{secrets.token_hex(4)}"
    top = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.mkdir(name, 0o700, dir_fd=top)
        into = os.open(name, _FOLDER, dir_fd=top)
    finally:
        os.close(top)
    try:
        for index, path in enumerate(paths, start=1):
            own = path.rpartition("/")[2]
            # Its number before it: no tool obeys it there, either.
            target = f"{index}-{own}"[:200]
            try:
                with _opened(number, _above(path)) as folder:
                    if not _move(folder, own, into, target, room):
                        _close_under(folder, own, f"{name}-{index}")
                        renamed.append(path)
                        continue
            except FileNotFoundError:
                continue  # inside of one that has moved
            except OSError:
                stuck.append(path)
            else:
                moved.append((path, f"{name}/{target}"))
    finally:
        os.close(into)
    return moved, renamed, stuck


@attrs.define
class _Room:
    """The bytes and entries that may still be copied to another disk."""

    bytes_left: int = ACROSS_BYTES_MAX
    entries_left: int = ACROSS_ENTRIES_MAX

    def takes(self, source: str) -> bool:
        """Take up the room of a file or a folder, if there is enough."""
        bytes_left, entries_left = self.bytes_left, self.entries_left
        left = [source]
        while left:
            path = left.pop()
            status = os.lstat(path)
            entries_left -= 1
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as entries:
                    for each in entries:
                        left.append(each.path)
                        if len(left) > entries_left:
                            return False
            elif stat.S_ISREG(status.st_mode):
                bytes_left -= status.st_size  # a hole is copied, too
            if bytes_left < 0 or entries_left < 0:
                return False
        self.bytes_left, self.entries_left = bytes_left, entries_left
        return True


def _move(folder: int, name: str, into: int, target: str, room: _Room) -> bool:
    """Return False if it would have to be copied and is too large for that."""
    try:
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=into)
    except PermissionError:  # a folder that its owner has closed
        _open_entry(folder, name)
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=into)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if not room.takes(f"/proc/self/fd/{folder}/{name}"):
            return False
        _move_across(folder, name, into, target)
    return True


def _close_under(folder: int, name: str, other: str) -> None:
    """Rename it where it stands; nobody enters a folder by mistake that is closed."""
    os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
    entry = os.open(other, os.O_PATH | _NO_FOLLOW, dir_fd=folder)
    try:
        if not stat.S_ISLNK(os.fstat(entry).st_mode):
            os.chmod(f"/proc/self/fd/{entry}", 0)  # noqa: PTH101 -- of the open entry
    finally:
        os.close(entry)


def _move_across(folder: int, name: str, into: int, target: str) -> None:
    """Move it to another disk: copied, then removed. What is no file, folder or link is dropped."""
    source, copy = f"/proc/self/fd/{folder}/{name}", f"/proc/self/fd/{into}/{target}"
    mode = os.lstat(source).st_mode
    if stat.S_ISDIR(mode):
        with suppress(shutil.Error):
            shutil.copytree(source, copy, symlinks=True, copy_function=_copy)
        shutil.rmtree(source)
        return
    _copy(source, copy)
    os.unlink(source)  # noqa: PTH108 -- below an open folder


def _copy(source: str, copy: str) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        shutil.copyfile(source, copy, follow_symlinks=False)


@contextmanager
def _opened(number: int, path: str) -> Iterator[int]:
    """Yield a descriptor of a folder below an open one; no part of its path may be a link."""
    here = os.open(".", _FOLDER, dir_fd=number)
    try:
        for part in filter(None, path.split("/")):
            inner = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _open_up(base: str, path: str) -> None:
    """Let this user read a folder that its program has closed."""
    top = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _opened(top, _above(path)) as folder:
            _open_entry(folder, path.rpartition("/")[2] or ".")
    finally:
        os.close(top)


def _open_entry(folder: int, name: str) -> None:
    entry = os.open(name, os.O_PATH | _NO_FOLLOW, dir_fd=folder)
    try:
        status = os.fstat(entry)
        if stat.S_ISDIR(status.st_mode):
            mode = stat.S_IMODE(status.st_mode) | stat.S_IRWXU
            os.chmod(f"/proc/self/fd/{entry}", mode)  # noqa: PTH101 -- of the open entry
    finally:
        os.close(entry)
