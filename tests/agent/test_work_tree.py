"""The state of git work trees, also hostile ones; discarded changes can be restored."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
import trio

from cortex.agent.workspace import work_tree
from cortex.agent.workspace.work_tree import discard, work_tree_state
from cortex.domain.errors import RejectedError
from cortex.domain.timeouts import DIFF_MAX_BYTES, LISTED_MAX, WorkTree
from tests.support.eventually import WITHIN_S

JOB = UUID(int=7)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
HOSTILE = 'new\nline\t"q" \\ \x1b[2J ü'


def git(folder: Path, *arguments: str) -> str:
    person = ("-c", "user.name=ana", "-c", "user.email=ana@example.org")
    done = subprocess.run(
        ["git", *person, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture(autouse=True)
def nobodys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the git settings of the person who runs the tests."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text('[filter "lfs"]\n\tclean = cat\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with two committed files."""
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "work")
    (folder / "a").write_text("one\n")
    (folder / "sub" / "b").write_text("two\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "begin")
    return folder


async def state_of(folder: Path) -> WorkTree:
    found = await work_tree_state(folder)
    assert found is not None
    return found


def changed(state: WorkTree) -> dict[str, str]:
    return {each.path: each.state for each in state.changes}


async def test_a_clean_tree_is_clean(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD").strip()
    shown = str(tree)
    assert await state_of(tree) == WorkTree(root=shown, folder=shown, branch="work", head=head)


async def test_work_tree_state_lists_every_kind_of_change(tree: Path) -> None:
    (tree / "a").write_text("changed\n")
    (tree / "sub" / "b").unlink()
    (tree / "staged").write_text("123")
    git(tree, "add", "staged")
    (tree / HOSTILE).write_text("1234")
    state = await state_of(tree)
    assert changed(state) == {"a": ".M", "sub/b": ".D", "staged": "A.", HOSTILE: "??"}
    sizes = {"a": 8, "sub/b": None, "staged": 3, HOSTILE: 4}
    assert {each.path: each.size_bytes for each in state.changes} == sizes
    assert state.change_count == 4
    assert state.problem is None
    assert "+changed\n" in state.diff
    assert "-two\n" in state.diff


async def test_newest_change_comes_first_even_if_it_is_a_deletion(tree: Path) -> None:
    (tree / "a").write_text("changed\n")
    before = datetime.fromtimestamp((tree / "a").stat().st_ctime, UTC)
    (tree / "sub" / "b").unlink()
    while datetime.fromtimestamp((tree / "sub").stat().st_ctime, UTC) <= before:
        (tree / "sub").touch()
    (gone, written) = (await state_of(tree)).changes
    assert (gone.path, written.path, written.changed_at) == ("sub/b", "a", before)
    assert gone.changed_at is not None
    assert gone.changed_at > before


async def test_tree_without_a_commit_or_a_branch_has_a_state(tree: Path, tmp_path: Path) -> None:
    git(tree, "checkout", "--quiet", "--detach")
    assert (await state_of(tree)).branch is None
    young = tmp_path / "young"
    young.mkdir()
    git(young, "init", "--quiet")
    (young / "x").write_text("x\n")
    git(young, "add", "x")
    state = await state_of(young)
    assert (state.head, changed(state)) == (None, {"x": "A."})
    assert "+x\n" in state.diff


async def test_state_of_a_subfolder_covers_only_that_folder(tree: Path) -> None:
    (tree / "a").write_text("a person's work\n")
    (tree / "sub" / "b").write_text("the job's\n")
    state = await state_of(tree / "sub")
    assert (state.root, state.folder) == (str(tree), str(tree / "sub"))
    assert changed(state) == {"sub/b": ".M"}
    await discard(tree / "sub", job_id=JOB, since=LONG_AGO)
    assert (tree / "a").read_text() == "a person's work\n"
    assert (tree / "sub" / "b").read_text() == "two\n"


async def test_folder_outside_a_work_tree_has_no_state(tmp_path: Path) -> None:
    assert await work_tree_state(tmp_path / "home") is None
    assert await work_tree_state(tmp_path / "never") is None
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert await work_tree_state(tmp_path / "loop") is None


@pytest.mark.parametrize("kind", ["empty", "file", "link"])
async def test_a_broken_repository_is_not_clean(tmp_path: Path, tree: Path, kind: str) -> None:
    folder = tree / "broken"
    folder.mkdir()
    match kind:
        case "empty":
            (folder / ".git").mkdir()
        case "file":
            (folder / ".git").write_text("gitdir: /nowhere")
        case _:
            (folder / ".git").symlink_to(tmp_path / "nowhere")
    state = await state_of(folder)
    assert (state.root, state.changes) == (str(folder), ())
    assert state.problem is not None
    output = ("git rev-parse: fatal: ", "its work tree is another", "its repository", "its .git is")
    assert state.problem.startswith(output)


EXECUTED = (
    *("core.fsmonitor", "core.pager", "core.editor", "core.askPass", "core.sshCommand"),
    *("core.gitProxy", "core.alternateRefsCommand", "credential.helper", "gpg.program"),
    *("diff.external", "diff.x.command", "diff.x.textconv", "merge.x.driver", "pager.status"),
    *("pager.diff", "sequence.editor", "interactive.diffFilter", "gc.recentObjectsHook"),
    *("uploadpack.packObjectsHook", "trailer.x.command", "receive.procReceiveRefs", "diff.tool"),
    *("remote.origin.uploadpack", "remote.origin.vcs", "filter.not-one.cleaner", "ssh.variant"),
)
"""Settings by which a repository has programs run, one day or another."""
SHELL_ALIASES = ("rev-parse", "status", "diff", "config", "stash", "ls-files", "diff-index")
HOOKS = (
    *("post-index-change", "pre-commit", "reference-transaction", "post-checkout", "pre-auto-gc"),
    *("fsmonitor-watchman", "post-rewrite", "applypatch-msg", "pre-applypatch"),
)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A program that writes to the file `ran` beside it."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $* >> {tmp_path}/ran\nexit 0\n")
    trap.chmod(0o755)
    return trap


def has_run(trap: Path) -> str:
    ran = trap.with_name("ran")
    return ran.read_text() if ran.exists() else ""


@pytest.mark.parametrize("means", ["set", "included", "included on a condition", "work tree's"])
async def test_programs_set_by_the_repository_never_run(tree: Path, trap: Path, means: str) -> None:
    values = [(key, str(trap)) for key in EXECUTED]
    values += [(f"alias.{name}", f"!{trap}") for name in SHELL_ALIASES]
    values += [("core.hooksPath", str(tree / "hooks")), ("status.submoduleSummary", "true")]
    values += [("diff.submodule", "log"), ("stash.showPatch", "true"), ("commit.gpgSign", "true")]
    values += [("protocol.allow", "always"), ("remote.origin.url", f"ext::{trap}")]
    file = tree / ".git" / "config"
    match means:
        case "included":
            git(tree, "config", "include.path", "more")
            file = tree / ".git" / "more"
        case "included on a condition":
            git(tree, "config", f"includeIf.gitdir:{tree}/.path", "more")
            file = tree / ".git" / "more"
        case "work tree's":
            git(tree, "config", "core.repositoryFormatVersion", "1")
            git(tree, "config", "extensions.worktreeConfig", "true")
            file = tree / ".git" / "config.worktree"
        case _:
            pass
    for key, value in values:
        git(tree, "config", "--file", str(file), key, value)
    (tree / "hooks").mkdir()
    for hook in HOOKS:
        (tree / ".git" / "hooks" / hook).symlink_to(trap)
        (tree / "hooks" / hook).symlink_to(trap)
    (tree / "git").symlink_to(trap)
    (tree / ".gitattributes").write_text("* diff=x merge=x\n")
    (tree / ".git" / "info" / "attributes").write_text("* diff=x merge=x\n")
    (tree / "a").write_text("changed\n")
    (tree / "new").write_text("new\n")
    state = await state_of(tree)
    assert (state.problem, changed(state)["a"], changed(state)["new"]) == (None, ".M", "??")
    assert await discard(tree, job_id=JOB, since=LONG_AGO)
    assert has_run(trap) == ""


async def test_settings_in_the_environment_are_not_passed_on(
    tree: Path, tmp_path: Path, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", "other")
    for name, value in {
        "GIT_DIR": str(tmp_path / "other" / ".git"),
        "GIT_WORK_TREE": str(tmp_path),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "objects"),
        "GIT_EXTERNAL_DIFF": str(trap),
        "GIT_EXEC_PATH": str(tmp_path),
        "GIT_SSH_COMMAND": str(trap),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor={trap}'",
        "GIT_TRACE": str(tmp_path / "trace"),
        "LD_PRELOAD": str(trap),
    }.items():
        monkeypatch.setenv(name, value)
    (tree / "a").write_text("changed\n")
    state = await state_of(tree)
    assert (state.root, changed(state)) == (str(tree), {"a": ".M"})
    assert not (tmp_path / "trace").exists()
    assert has_run(trap) == ""


@pytest.mark.parametrize("part", [".", "", "programs"])
async def test_git_is_never_taken_from_the_tree(
    tree: Path, trap: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "programs").mkdir()
    for folder in (tree, tree / "programs"):
        (folder / "git").symlink_to(trap)
    monkeypatch.setenv("PATH", f"{part}:{os.environ['PATH']}")
    assert (await state_of(tree)).problem is None
    assert has_run(trap) == ""


async def test_a_filter_of_the_user_takes_no_orders_from_the_repository(
    tree: Path, tmp_path: Path, trap: Path
) -> None:
    """As git-lfs does, whose extensions are commands that the repository's settings name."""
    lfs = tmp_path / "lfs"
    lfs.write_text("#!/bin/sh\n$(git config lfs.extension.x.clean)\ncat\n")
    lfs.chmod(0o755)
    settings = f'[filter "lfs"]\n\tclean = {lfs}\n\tsmudge = {lfs}\n\trequired = true\n'
    (tmp_path / "home" / ".gitconfig").write_text(settings)
    git(tree, "config", "lfs.extension.x.clean", str(trap))
    (tree / ".gitattributes").write_text("*.bin filter=lfs\n")
    (tree / "large.bin").write_text("large\n")
    state = await state_of(tree)
    assert (state.problem, changed(state)) == (None, {"large.bin": "??", ".gitattributes": "??"})
    with pytest.raises(RejectedError, match="changed files go through the filter 'lfs'"):
        await discard(tree, job_id=JOB, since=LONG_AGO)
    (tree / "large.bin").unlink()
    assert await discard(tree, job_id=JOB, since=LONG_AGO)
    assert has_run(trap) == ""


def other_of(tree: Path) -> Path:
    """Another person's repository, with a change that must stay untouched."""
    other = tree.with_name("other")
    shutil.copytree(tree, other)
    (other / "a").write_text("somebody's\n")
    git(other, "add", "a")
    return other


def contents(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


ASTRAY = ("file", "symlink", "commondir", "commondir in file", "index", "HEAD", "refs", "logs")


@pytest.mark.parametrize("kind", [*ASTRAY, "refs/stash", "logs/refs/stash", "objects/aa", "config"])
async def test_a_repository_that_leads_to_another_is_left_alone(tree: Path, kind: str) -> None:
    other = other_of(tree)
    (other / ".git" / "objects" / "aa").mkdir(exist_ok=True)
    (other / ".git" / "refs" / "stash").write_text(git(other, "rev-parse", "HEAD"))
    (other / ".git" / "logs" / "refs" / "stash").write_text("")
    (tree / "a").write_text("changed\n")
    place = tree / ".git"
    match kind:
        case "file":
            shutil.rmtree(place)
            place.write_text(f"gitdir: {other}/.git\n")
        case "symlink":
            shutil.rmtree(place)
            place.symlink_to(other / ".git")
        case "commondir":
            (place / "commondir").write_text(f"{other}/.git\n")
        case "commondir in file":
            place.rename(tree / "inner")
            (tree / "inner" / "gitdir").write_text(f"{tree}/.git\n")
            (tree / "inner" / "commondir").write_text(f"{other}/.git\n")
            place.write_text("gitdir: inner\n")
        case _:
            inner = place / kind
            shutil.rmtree(inner) if inner.is_dir() else inner.unlink(missing_ok=True)
            inner.symlink_to(other / ".git" / kind)
    before = contents(other)
    state = await state_of(tree)
    assert state.problem is not None
    assert (state.changes, state.diff) == ((), "")
    with pytest.raises(RejectedError):
        await discard(tree, job_id=JOB, since=LONG_AGO)
    assert contents(other) == before
    assert (tree / "a").read_text() == "changed\n"


@pytest.mark.parametrize("kind", ["linked", "submodule"])
async def test_a_repository_that_lies_elsewhere_and_points_back_is_read(
    tree: Path, tmp_path: Path, kind: str
) -> None:
    inner = tmp_path / "linked"
    if kind == "linked":
        git(tree, "worktree", "add", "--quiet", str(inner))
    else:
        other = other_of(tree)
        allowed = ("-c", "protocol.file.allow=always")
        git(tree, *allowed, "submodule", "--quiet", "add", str(other), "module")
        inner = tree / "module"
    (inner / "a").write_text("changed\n")
    state = await state_of(inner)
    assert (state.problem, changed(state)) == (None, {"a": ".M"})
    assert await discard(inner, job_id=JOB, since=LONG_AGO)
    assert (await state_of(inner)).change_count == 0


THEIRS = 64_243


@pytest.fixture
def theirs(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A changed work tree of another user, and a git that records its user there."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    with tempfile.TemporaryDirectory(prefix="cortex-tree-") as made:
        place = Path(made).resolve() / "tree"
        place.parent.chmod(0o711)
        shutil.copytree(tree, place)
        (place / "a").write_text("changed\n")
        subprocess.run(["chown", "-R", f"{THEIRS}:{THEIRS}", str(place)], check=True)
        note = f"{{ id -u; id -G; }} >> {place}/.git/seen"
        wrapper = place.with_name("git")
        wrapper.write_text(f'#!/bin/sh\n{note}; exec {shutil.which("git")} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{made}:{os.environ['PATH']}")
        yield place


async def test_root_runs_git_as_the_owner_of_the_tree(theirs: Path) -> None:
    state = await state_of(theirs)
    assert (state.problem, changed(state)) == (None, {"a": ".M"})
    assert await discard(theirs, job_id=JOB, since=LONG_AGO)
    assert (theirs / ".git" / "refs" / "stash").stat().st_uid == THEIRS
    assert set((theirs / ".git" / "seen").read_text().splitlines()) == {str(THEIRS)}


async def test_repository_with_filters_of_its_own_is_not_read(tree: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    git(tree, "config", "filter.x.clean", f"touch {ran}")
    (tree / ".gitattributes").write_text("* filter=x\n")
    (tree / "a").write_text("changed\n")
    assert (await state_of(tree)).problem == "it has filters of its own: filter.x.clean"
    with pytest.raises(RejectedError, match=r"filter\.x\.clean"):
        await discard(tree, job_id=JOB, since=LONG_AGO)
    assert not ran.exists()


async def test_a_repository_cannot_point_elsewhere(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "secret").write_text("s")
    git(tree, "config", "core.worktree", str(tmp_path / "home"))
    assert (await state_of(tree)).problem is not None
    with pytest.raises(RejectedError):
        await discard(tree, job_id=JOB, since=LONG_AGO)
    assert (tmp_path / "home" / "secret").exists()


async def test_reading_the_state_changes_nothing(tree: Path) -> None:
    (tree / "a").touch()
    index = (tree / ".git" / "index").read_bytes()
    (tree / ".git" / "index.lock").touch()  # as a killed git leaves it
    assert (await state_of(tree)).problem is None
    assert (tree / ".git" / "index").read_bytes() == index


async def test_much_is_cut_and_counted(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "a").write_text("x" * 3 * DIFF_MAX_BYTES)
    for number in range(LISTED_MAX + 5):
        (tree / f"file-{number:03}").touch()
    state = await state_of(tree)
    assert (len(state.changes), state.change_count) == (LISTED_MAX, LISTED_MAX + 6)
    assert len(state.diff.encode()) <= DIFF_MAX_BYTES
    monkeypatch.setattr(work_tree, "STATUS_MAX_BYTES", 500)
    state = await state_of(tree)
    assert 0 < state.change_count < 300
    assert state.problem == "it has more changes than could be listed"
    assert all((tree / each.path).exists() for each in state.changes)


async def test_hanging_git_is_ended_and_reported(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with trio.fail_after(WITHIN_S):
        state = await work_tree_state(tree, timeout_s=0.2)
    assert state is not None
    assert state.problem == "git took longer than 0.2 seconds"


async def test_missing_git_is_reported(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    state = await state_of(tree)
    assert state.problem == "git cannot be started: No such file or directory"


async def test_discarded_changes_can_be_restored_from_the_stash(tree: Path) -> None:
    (tree / "a").write_text("changed\n")
    (tree / HOSTILE).write_text("1234")
    commit = await discard(tree, job_id=JOB, since=LONG_AGO)
    assert commit is not None
    assert (await state_of(tree)).change_count == 0
    assert f"cortex: discarded by resume of job {JOB}" in git(tree, "stash", "list")
    git(tree, "stash", "apply", commit)
    assert ((tree / "a").read_text(), (tree / HOSTILE).read_text()) == ("changed\n", "1234")


async def test_discard_keeps_changes_older_than_its_start(tree: Path) -> None:
    (tree / "a").write_text("of a committed step\n")
    (tree / "older").write_text("1")
    since = datetime.fromtimestamp((tree / "older").stat().st_ctime, UTC)
    while (tree / "newer").write_text("2") and datetime.fromtimestamp(
        (tree / "newer").stat().st_ctime, UTC
    ) <= since:
        (tree / "newer").unlink()
    assert await discard(tree, job_id=JOB, since=since)
    assert changed(await state_of(tree)) == {"a": ".M", "older": "??"}


async def test_discard_without_changes_adds_no_stash(tree: Path) -> None:
    (tree / "a").write_text("changed\n")
    first = await discard(tree, job_id=JOB, since=LONG_AGO)
    assert first is not None
    assert await discard(tree, job_id=JOB, since=LONG_AGO) is None
    assert git(tree, "rev-parse", "refs/stash").strip() == first


async def test_failed_discard_keeps_the_changes(tree: Path, tmp_path: Path) -> None:
    (tree / "a").write_text("changed\n")
    (tree / ".git" / "index.lock").touch()
    with pytest.raises(RejectedError, match=r"index\.lock"):
        await discard(tree, job_id=JOB, since=LONG_AGO)
    assert (tree / "a").read_text() == "changed\n"
    with pytest.raises(RejectedError, match="in no git work tree"):
        await discard(tmp_path / "home", job_id=JOB, since=LONG_AGO)


async def test_cortex_own_data_is_no_part_of_a_tree(tree: Path) -> None:
    data = tree / "da*ta"
    (data / "workspaces").mkdir(parents=True)
    (data / "workspaces" / "file").write_text("1")
    (tree / "dalta").write_text("2")
    state = await work_tree_state(tree, spared=data)
    assert state is not None
    assert changed(state) == {"dalta": "??"}
    assert await discard(tree, job_id=JOB, since=LONG_AGO, spared=data)
    assert (data / "workspaces" / "file").exists()
    assert not (tree / "dalta").exists()
