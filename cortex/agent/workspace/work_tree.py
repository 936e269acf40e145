"""The git work tree around a folder: lists its uncommitted changes and stashes them.

The repository may have been written by a model. Its hooks, monitors, helpers and remotes are not
run. If it has filters of its own, which git would have to run, or leads elsewhere, nothing is read
or touched. People's own filters are not run either: the repository could direct them.
"""

import os
import re
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import attrs
import trio

from cortex.agent.confinement.means import PASSED_ON_UNCONFINED
from cortex.agent.confinement.process import run_process
from cortex.agent.workspace.artefacts import printable
from cortex.agent.workspace.repository import owner_of, require_own
from cortex.domain.errors import CortexError, RejectedError
from cortex.domain.key_shapes import masked
from cortex.domain.timeouts import DIFF_MAX_BYTES, LISTED_MAX, FileChange, WorkTree, clipped

# --- Reading the output of `git status`: one line per change, hostile names in quotes.


# Fields before the path: of an ordinary change, and of an unmerged one.
_FIELDS: Final = {"1": 8, "u": 10}
_ESCAPES: Final = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


def changes_in(root: Path, lines: Sequence[str]) -> list[FileChange]:
    """Return the changes in lines of `git status --porcelain=v2`, the newest first.

    Changes of unknown age come first. Blocks: it stats each file.
    """
    changes = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "?":
            changes.append(_change(root, "??", rest))
        elif kind in _FIELDS:
            changes.append(_change(root, rest[:2], line.split(" ", _FIELDS[kind])[-1]))
    return sorted(changes, key=_age)


def _age(change: FileChange) -> float:
    return float("-inf") if change.changed_at is None else -change.changed_at.timestamp()


def _change(root: Path, state: str, quoted: str) -> FileChange:
    name = name_of(quoted)
    size_bytes: int | None = None
    changed_s: float | None = None
    place = root / name
    for depth, path in enumerate((place, *place.parents)):
        try:
            status = path.lstat()
        except OSError:
            continue  # gone: its folder changed when it went
        is_folder_itself = stat.S_ISDIR(status.st_mode) and depth == 0  # a repository in this one
        changed_s = None if is_folder_itself else status.st_ctime
        size_bytes = status.st_size if depth == 0 and not is_folder_itself else None
        break
    return FileChange(
        path=printable(name),
        state=state,
        size_bytes=size_bytes,
        changed_at=None if changed_s is None else datetime.fromtimestamp(changed_s, UTC),
    )


def name_of(quoted: str) -> str:
    """Return the system's path for a path printed by git."""
    return os.fsdecode(_unquoted(quoted))


def _unquoted(name: str) -> bytes:
    r"""Unquote a name as git prints it: plain, or in quotes with escapes like `\n` and `\303`."""
    if not name.startswith('"'):
        return os.fsencode(name)
    return re.sub(rb"\\([0-7]{3}|.)", _unescaped, os.fsencode(name[1:-1]))


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([_ESCAPES[code[0]] if code[0] in _ESCAPES else int(code, 8)])


# ---


STATUS_MAX_BYTES: Final = 4_194_304
ANSWER_MAX_BYTES: Final = 65_536
GIT_S: Final = 60.0
"""For one call: a stash of many files takes time."""

_GIT: Final = (
    *("git", "--no-pager", "--no-optional-locks"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=true", "-c", "status.relativePaths=false"),
    *("-c", "diff.autoRefreshIndex=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
)
_QUIET: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch, by commands of its own
    "LC_ALL": "C",
}
_FILTERS: Final = r"^filter\..*\.(clean|smudge|process|required)$"
_OFF: Final = {"clean": "", "smudge": "", "process": "", "required": "false"}
"""The settings that disable a filter."""
_CUT: Final = "\n[… "  # the mark of `process` for omitted output; git quotes it in names


async def work_tree_state(
    folder: Path, *, spared: Path | None = None, timeout_s: float = 5.0
) -> WorkTree | None:
    """Return the uncommitted changes below `folder` in its git work tree; None without one.

    `spared` is a folder that may lie in it and is no part of it: Cortex's own data. Errors are
    stored in the result's `problem`. Nothing is changed, and all processes of git have ended when
    this returns, soon after `timeout_s` at the latest.
    """
    root = await trio.to_thread.run_sync(_root_of, folder)
    if root is None:
        return None
    bare = WorkTree(root=printable(str(root)), folder=printable(str(folder)))
    try:
        with trio.fail_after(timeout_s):
            return await _read_changes(bare, root, folder, spared)
    except trio.TooSlowError:
        return attrs.evolve(bare, problem=f"git took longer than {timeout_s:g} seconds")
    except CortexError as error:
        return attrs.evolve(bare, problem=error.message)


async def discard(
    folder: Path, *, job_id: UUID, since: datetime, spared: Path | None = None
) -> str | None:
    """Stash uncommitted work below `folder` that changed after `since`.

    Return the commit of the stash; None if there was nothing. Nothing is lost: `git stash apply
    COMMIT` brings it back. Ignored and older files stay, and so do those in `spared` or of unknown
    age. Raises `RejectedError` with the reason; after a cut in between, whatever is not in the
    stash is still in its place.
    """
    root = await trio.to_thread.run_sync(_root_of, folder)
    if root is None:
        raise RejectedError(f"{folder} is in no git work tree")
    filters = await _check(root)
    lock = root / (await _git(root, "rev-parse", "--git-path", "index.lock")).strip()
    if await trio.Path(lock).exists():  # git would end without an error
        raise RejectedError(
            f"git is at work in {root}, or was killed there: {lock} exists",
            hint="remove that file if no git runs there any more",
        )
    state = await _read_changes(WorkTree(root=str(root), folder=str(folder)), root, folder, spared)
    chosen = [f":(top,literal){each.path}" for each in state.changes if _is_since(each, since)]
    if not chosen:
        return None
    await _refuse_filtered(root, filters, {each.path for each in state.changes})
    before = await _stash(root)
    message = f"cortex: discarded by resume of job {job_id}"
    push = ("stash", "push", "--quiet", "--include-untracked", "--message", message)
    await _git(folder, *push, "--", *chosen, filters=filters)
    after = await _stash(root)
    return None if after == before else after


def _is_since(change: FileChange, since: datetime) -> bool:
    # A name that is not UTF-8 cannot be passed to git as it is shown: it stays.
    is_named = "\ufffd" not in change.path
    return is_named and change.changed_at is not None and change.changed_at > since


async def _read_changes(bare: WorkTree, root: Path, folder: Path, spared: Path | None) -> WorkTree:
    filters = await _check(root)
    paths = _paths(root, spared)
    output = await _git(
        *(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=all"),
        *("--no-renames", "--ignore-submodules=all", "--", *paths),
        filters=filters,
        output_max_bytes=STATUS_MAX_BYTES,
    )
    whole, cut, _ = output.partition(_CUT)
    lines = whole.split("\n")[:-1]
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    head = None if heads.get("branch.oid") == "(initial)" else heads.get("branch.oid")
    branch = heads.get("branch.head")
    changes = await trio.to_thread.run_sync(changes_in, root, lines, abandon_on_cancel=True)
    diff = await _git(
        *(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"),
        *("--ignore-submodules=all", "HEAD" if head else "--cached", "--", *paths),
        filters=filters,
        output_max_bytes=DIFF_MAX_BYTES,
    )
    return attrs.evolve(
        bare,
        branch=None if branch == "(detached)" else branch,
        head=head,
        changes=tuple(changes[:LISTED_MAX]),
        change_count=len(changes),
        diff=clipped(masked(diff), DIFF_MAX_BYTES),
        problem="it has more changes than could be listed" if cut else None,
    )


async def _check(root: Path) -> tuple[str, ...]:
    """Return the names of people's own filters, which must not run here.

    Raises `RejectedError` if git would leave this folder, or run commands of the repository.
    """
    await trio.to_thread.run_sync(require_own, root, abandon_on_cancel=True)
    answer = await _git(root, "rev-parse", "--show-toplevel")
    if answer.removesuffix("\n") != printable(str(root)):
        raise RejectedError("its work tree is another folder")
    query = ("config", "--show-scope", "--name-only", "--get-regexp", _FILTERS)
    settings = [
        line.partition("\t") for line in (await _git(root, *query, good=(0, 1))).splitlines()
    ]
    own = [name for scope, _, name in settings if scope in ("local", "worktree")]
    if own:
        raise RejectedError(f"it has filters of its own: {own[0]}")
    return tuple(dict.fromkeys(name.split(".", 1)[1].rpartition(".")[0] for _, _, name in settings))


async def _refuse_filtered(root: Path, filters: Sequence[str], changed: set[str]) -> None:
    """Raise `RejectedError` if changed files go through filters: git would store them raw."""
    for each in filters:
        query = ("ls-files", "--cached", "--others", "--", f":(top,attr:filter={each})")
        listing = await _git(root, *query, output_max_bytes=STATUS_MAX_BYTES)
        if _CUT in listing or any(
            printable(name_of(line)) in changed for line in listing.splitlines()
        ):
            raise RejectedError(f"changed files go through the filter {each!r}, which may not run")


def _paths(root: Path, spared: Path | None) -> tuple[str, ...]:
    """The paths for git: the folder in which it runs, without the spared one."""
    if spared is None or spared == root or not spared.is_relative_to(root):
        return (".",)
    return (".", f":(top,literal,exclude){spared.relative_to(root)}")


async def _stash(root: Path) -> str | None:
    commit = await _git(root, "rev-parse", "--quiet", "--verify", "refs/stash", good=(0, 1))
    return commit.strip() or None


async def _git(
    folder: Path,
    *arguments: str,
    good: tuple[int, ...] = (0,),
    filters: Sequence[str] = (),
    output_max_bytes: int = ANSWER_MAX_BYTES,
) -> str:
    """Run git in `folder`; return its output. Raises `RejectedError` with its first error line."""
    try:
        uid = owner_of(_root_of(folder) or folder)
        done = await run_process(
            [*_GIT, *arguments],
            folder=folder,
            environment=_environment(filters, is_at_home=uid is None),
            uid=uid,
            timeout_s=GIT_S,
            output_max_bytes=output_max_bytes,
        )
    except OSError as error:
        raise RejectedError(f"git cannot be started: {error.strerror}") from error
    if done.timed_out:
        raise RejectedError(f"git {arguments[0]} took longer than {GIT_S:g} seconds")
    if done.exit_code not in good:
        error_line = next(iter(done.stderr.splitlines()), f"it ended with {done.exit_code}")
        raise RejectedError(f"git {arguments[0]}: {error_line}")
    return done.stdout


def _environment(filters: Sequence[str], *, is_at_home: bool) -> dict[str, str]:
    passed = {k: v for k, v in os.environ.items() if PASSED_ON_UNCONFINED.fullmatch(k)}
    # A relative part could run a git of the folder itself.
    parts = passed.get("PATH", os.defpath).split(os.pathsep)
    passed["PATH"] = os.pathsep.join(each for each in parts if each.startswith("/"))
    if not is_at_home:
        passed["HOME"] = "/nonexistent"
    # Not as arguments: a name may contain `=`.
    off = [(f"filter.{name}.{key}", value) for name in filters for key, value in _OFF.items()]
    settings = {"GIT_CONFIG_COUNT": str(len(off))}
    for number, (key, value) in enumerate(off):
        settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**passed, **_QUIET, **settings}


def _root_of(folder: Path) -> Path | None:
    """Return the nearest folder around `folder`, itself included, that contains a repository."""
    try:
        here = folder.resolve(strict=True)
    except (OSError, RuntimeError):  # it does not exist, or is a loop of links
        return None
    return next((each for each in (here, *here.parents) if os.path.lexists(each / ".git")), None)
