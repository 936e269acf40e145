"""Programs of agents leave nothing in a declared folder that a tool of its owner obeys unasked."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cortex.agent.confinement.interrupted import settle
from cortex.agent.confinement.kept_names import (
    ACROSS_ENTRIES_MAX,
    FOLDERS_MAX,
    KEPT,
    kept_name,
    leftovers,
    quarantine,
    survey,
)
from cortex.agent.confinement.writable import opened
from cortex.domain.confinement import Confinement
from tests.support.eventually import eventually
from tests.support.pod_place import AS_ROOT, Place, available

CREATING = {
    "write": "echo evil > {}",
    "mkdir": "mkdir -p {}/hooks && echo evil > {}/hooks/pre-commit",
    "rename": "echo evil > x1 && mv x1 {}",
    "rename a folder": "mkdir x2 && echo evil > x2/f && mv x2 {}",
    "symlink": "echo evil > x3 && ln -s x3 {}",
    "symlink to nothing": "ln -s /nonexistent {}",
    "hard link": "echo evil > x4 && ln x4 {}",
    "named pipe": "mkfifo {}",
    "closed folder": "mkdir -p {}/a && chmod 000 {}",
    "back and forth": "echo evil > {} && mv {} x5 && mv x5 {}",
}
NAMES = {
    ".git": ".git",
    "settings": "cortex.toml",
    "direnv": ".envrc",
    "editor": ".vscode",
    "workflows": ".github",
    "hooks": ".husky",
    "attributes": ".gitattributes",
    "upper case": ".GIT",
    "mixed case": ".EnvRc",
    "short name of Windows": "git~1",
    "dot at the end": ".git.",
    "blank at the end": "'.git '",
    "ignored character": ".g\u200cit",
    "full width": ".\uff47\uff49\uff54",
}
BELOW = {
    "deep": "mkdir -p a/b/c/d && echo evil > a/b/c/d/.envrc",
    "nested repository": "mkdir -p sub/.git/hooks && echo evil > sub/.git/hooks/pre-commit",
    "repository by a file": "mkdir sub && echo 'gitdir: /tmp/evil' > sub/.git",
    "bare repository": "mkdir -p b/objects b/refs && echo 'ref: refs/heads/x' > b/HEAD",
    "in an old folder": "echo evil > old/.envrc",
    "in an old folder with old times": "echo evil > old/.zed; touch -d 2001-01-01 old old/.zed",
    "folder that moves": "mkdir m && echo evil > m/.envrc && mv m old/m",
    "old folder that moves": "mkdir old/n; echo evil > old/n/.envrc; mv old/n n",
    "closed parent": "mkdir -p p/q && echo evil > p/q/.envrc && chmod 000 p/q",
    "closed old folder": "echo evil > old/.idea && chmod 300 old",
    "worktree of a repository": (
        "mkdir -p c/objects c/refs wt && echo 'ref: refs/heads/x' > wt/HEAD"
        " && echo ../c > wt/commondir"
    ),
    "bare repository in capitals": "mkdir -p k/Objects k/REFS && echo 'ref: refs/heads/x' > k/head",
    "behind a link": "mkdir r && echo evil > r/.envrc && ln -s r s",
    "link in place of an old folder": "mv old2 t && ln -s /etc old2 && echo evil > t/.envrc",
    "many": "for i in $(seq 60); do mkdir z$i; echo evil > z$i/.npmrc; done",
    "strange name": 'd=$(printf \'a\\nb\\033[2J\') && mkdir "$d" && echo evil > "$d"/.envrc',
    "no UTF-8": 'd=$(printf \'x\\377\') && mkdir "$d" && echo evil > "$d"/.envrc',
}


def forbidden(folder: Path) -> list[str]:
    """Return everything in a folder, followed by no link, that a tool would obey."""
    found = []
    for top, folders, files in os.walk(folder):
        found += [f"{top}/{each}" for each in (*folders, *files) if kept_name(each)]
        names = {each.lower() for each in (*folders, *files)}
        if "head" in names and ("commondir" in names or {"objects", "refs"} <= names):
            found.append(f"{top}/HEAD")
    return found


def prepared(place: Place) -> Path:
    folder = place.root / "folder"
    shutil.rmtree(folder / ".git")
    for name in ("old", "old2", "work"):
        (folder / name).mkdir()
    if AS_ROOT:
        subprocess.run(["chown", "-R", f"{place.uid}:{place.uid}", str(folder)], check=True)
    return folder


def moved(place: Place) -> list[str]:
    return [each.name for each in place.workspace.glob("quarantine-*/*")]


def is_written(means: Confinement) -> bool:
    return means is not Confinement.USER  # the folder is read-only there


def test_nothing_is_created_under_a_kept_name(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    """Each way and each name, at the top of the folder and below; what else is written stays."""
    means, place = confined_as_me
    folder = prepared(place)
    attempts = [(way, name) for way in CREATING.values() for name in (".git", ".envrc")]
    attempts += [(CREATING["write"], name) for name in NAMES.values()]
    script = ["cd work"]
    for number, (way, name) in enumerate(attempts):
        script.append(f"mkdir w{number}; (cd w{number}; {way.replace('{}', name)})")
    script += ["cd ..", *(f"({CREATING['write'].replace('{}', each)})" for each in NAMES.values())]
    script += ["echo kept > old/result"]
    done = place.run(means, "sh", "-c", "\n".join(script), folder=folder)
    for each in folder.rglob("*"):
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o700)
    assert forbidden(folder) == []
    if not is_written(means):
        return
    assert (folder / "old" / "result").read_text() == "kept\n"
    has_top = means is Confinement.BUBBLEWRAP  # Landlock lets nothing new appear there
    assert len(moved(place)) == len(attempts) + has_top * len(NAMES), done["stderr"]
    assert "in the workspace, since programs may not create such names" in done["stderr"]
    assert "work/w0/.git" in done["stderr"]


def test_nothing_is_created_below(confined_as_me: tuple[Confinement, Place]) -> None:
    means, place = confined_as_me
    folder = prepared(place)
    work = "" if means is Confinement.BUBBLEWRAP else "cd work; mkdir old old2; "
    script = "\n".join(f"({work}{each})" for each in BELOW.values())
    done = place.run(means, "sh", "-c", script, folder=folder)
    subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=True)
    assert forbidden(folder) == []
    if is_written(means):
        assert len(moved(place)) >= len(BELOW) - 2, done["stderr"]
        assert "\x1b" not in done["stderr"]
        assert Path("/etc").is_dir()


EXISTING = ("cortex.toml", ".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".npmrc")
CHANGING = (
    *(
        "echo evil > {}",
        "echo evil >> {}",
        "rm -f {}",
        "mv {} x",
        "chmod 777 {}",
        "truncate -s0 {}",
    ),
    *("sed -i s/mine/evil/ {}", "ln -f old/f {}", "cp old/f {}", "exec 3>>{}; echo evil >&3"),
)


def test_programs_do_not_change_what_exists_at_the_top(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    means, place = confined_as_me
    folder = prepared(place)
    (folder / "old" / "f").write_text("evil")
    for each in EXISTING:
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_text("mine")
    if AS_ROOT:
        subprocess.run(["chown", "-R", f"{place.uid}:{place.uid}", str(folder)], check=True)
    before = {each: (folder / each).stat() for each in EXISTING}
    script = [f"({way.replace('{}', each)})" for way in CHANGING for each in EXISTING]
    script += ["mv .vscode x", "rm -rf .github", "echo evil > .vscode/launch.json"]
    place.run(means, "sh", "-c", "\n".join(script), folder=folder)
    for each, status in before.items():
        assert (folder / each).read_text() == "mine"
        now = (folder / each).stat()
        assert (now.st_ino, now.st_mode) == (status.st_ino, status.st_mode)
    assert not (folder / ".vscode" / "launch.json").exists()


def test_a_change_of_what_exists_below_is_reported(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    means, place = confined_as_me
    folder = prepared(place)
    (folder / "old" / ".envrc").write_text("mine")
    (folder / "old" / ".vscode").mkdir()
    if AS_ROOT:
        subprocess.run(["chown", "-R", f"{place.uid}:{place.uid}", str(folder)], check=True)
    script = "echo evil > old/.envrc; echo evil > old/.vscode/tasks.json"
    done = place.run(means, "sh", "-c", script, folder=folder)
    if is_written(means):
        assert "changed, although programs may not: old/.envrc, old/.vscode" in done["stderr"]
        assert moved(place) == []


def test_a_dead_pods_folder_is_searched_later(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    """Its program ends with it, and nobody looks then: the job's next tool call does."""
    means, place = confined_as_me
    folder = prepared(place)
    (folder / "old" / ".envrc").write_text("mine")
    if not is_written(means):
        pytest.skip("the folder is read-only")
    script = "echo evil > work/.envrc; echo kept > work/result; mkdir old2/.git; sleep 100"
    with place.started(means, "sh", "-c", script, folder=folder) as running:
        eventually((folder / "old2" / ".git").exists, what="the program has written")
        assert settle(place.workspace) == ""  # its pod lives
        running.kill()
        running.wait()
    assert forbidden(folder) != []
    note = settle(place.workspace)
    assert "old2/.git, work/.envrc" in note
    assert forbidden(folder) == [f"{folder}/old/.envrc"]
    assert (folder / "work" / "result").read_text() == "kept\n"
    assert settle(place.workspace) == ""
    assert not list(place.workspace.parent.glob("*.running"))


def test_two_programs_at_once_leave_nothing(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    """What one of them makes is nothing that was there before, when the other begins."""
    means, place = confined_as_me
    folder = prepared(place)
    if not is_written(means):
        pytest.skip("the folder is read-only")
    first = "cd work; echo evil > .envrc; while [ ! -e linked ]; do sleep 0.02; done"
    second = (
        "cd work; ln .envrc x; touch linked; while [ -e .envrc ]; do sleep 0.02; done; mv x .envrc"
    )
    with place.started(means, "sh", "-c", first, folder=folder) as running:
        eventually((folder / "work" / ".envrc").exists, what="the first program has written")
        done = place.run(means, "sh", "-c", second, folder=folder)
        assert running.wait() == 0
    assert forbidden(folder) == []
    assert "work/.envrc" in done["stderr"]


SETTINGS = {
    "hooks": "[core]\n\thooksPath = tools/hooks\n",
    "hooks on one line": '[core] HOOKSPATH = "./tools/hooks"\n',
    "hooks that are missing": "[core]\n\thookspath=new\n",
    "more settings": "[include]\n\tpath = ../tools/gitconfig\n",
    "settings of a branch": '[includeIf "onbranch:x"]\n\tpath = ../new\n',
    "a filter": '[filter "x"]\n\tclean = sh ./tools/clean %f\n',
    "a driver": '[merge "x"]\n\tdriver = tools/clean %O\n',
    "a monitor": "[core]\n\tfsmonitor = tools/clean\n",
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("way", ["folder", "work tree", "below"])
def test_git_obeys_no_file_that_programs_write(tmp_path: Path, settings: str, way: str) -> None:
    """Neither in the repository's own folder, nor in a linked work tree, nor in one inside."""
    root = tmp_path.resolve() / "root"
    (root / "tools" / "hooks").mkdir(parents=True)
    (root / "tools" / "clean").write_text("cat")
    (root / "tools" / "gitconfig").write_text("")
    git = root / ".git"
    if way == "work tree":
        git.write_text("gitdir: ../main/.git/worktrees/root\n")
        inner = tmp_path / "main" / ".git" / "worktrees" / "root"
        inner.mkdir(parents=True)
        (inner / "commondir").write_text("../..\n")
        git = tmp_path / "main" / ".git"
        settings = settings.replace("../", f"{root}/")
    else:
        git.mkdir()
    (git / "config").write_text("[core]\n\tbare = false\n")
    folder = root / "tools" if way == "below" else root
    assert ground_of(folder) is None
    (git / "config").write_text(settings)
    reason = ground_of(folder)
    if way == "below" and "new" in settings:
        assert reason is None
    else:
        assert reason is not None
        assert "git obeys" in reason


@pytest.mark.parametrize("inside", ["tools/hooks", "tools/hooks/more"])
def test_the_folder_of_hooks_is_not_written(tmp_path: Path, inside: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / inside).mkdir(parents=True)
    (tmp_path / ".git" / "config").write_text("[core]\n\thooksPath = tools/hooks\n")
    assert "git obeys" in (ground_of(tmp_path.resolve() / inside) or "")


@pytest.mark.parametrize(
    "inside", [".git", ".git/hooks", ".github/workflows", ".vscode", ".husky/_", "a/.ENVRC/b"]
)
@pytest.mark.parametrize("has_repository", [True, False])
def test_a_folder_below_a_kept_name_is_not_written(
    tmp_path: Path, inside: str, has_repository: bool
) -> None:
    if has_repository:
        (tmp_path / ".git").mkdir()
    folder = tmp_path.resolve() / inside
    folder.mkdir(parents=True, exist_ok=True)
    assert "which tools obey unasked" in (ground_of(folder) or "")
    (folder / "tree").mkdir()
    (folder / "tree" / ".git").mkdir()
    assert ground_of(folder / "tree") is None  # a repository of its own, such as a work tree


@pytest.mark.parametrize(
    "settings",
    [
        "[core]\n\thooksPath = ~/hooks\n",
        "[core]\n\thooksPath = .husky/_\n",
        "[core]\n\thooksPath = .git/hooks\n",
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n',
        "[include]\n\tpath = ~/more\n",
        '[remote "origin"]\n\turl = ../tools\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
    ],
)
def test_ordinary_settings_of_git_let_programs_write(tmp_path: Path, settings: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / ".git" / "config").write_text(settings)
    assert ground_of(tmp_path.resolve()) is None


def ground_of(folder: Path) -> str | None:
    """Return why a folder is read-only."""
    ground = opened(folder, ())
    os.close(ground.number)
    return ground.read_only


def test_ordinary_work_is_not_touched(confined_as_me: tuple[Confinement, Place]) -> None:
    means, place = confined_as_me
    folder = prepared(place)
    script = (
        "mkdir -p work/src/git work/vscode; touch work/git work/.gitignore work/envrc work/HEAD"
    )
    done = place.run(means, "sh", "-c", script, folder=folder)
    if is_written(means):
        assert (done["exit_code"], done["stderr"]) == (0, "")
        assert {each.name for each in (folder / "work").iterdir()} >= {"git", ".gitignore", "HEAD"}
    assert moved(place) == []


@pytest.mark.skipif(not AS_ROOT, reason="only root mounts a disk")
@pytest.mark.skipif(not available(Confinement.BUBBLEWRAP, 0), reason="no bubblewrap")
def test_another_disk_is_cleared_too(tmp_path: Path) -> None:
    folder, workspace = tmp_path / "folder", tmp_path / "workspace"
    folder.mkdir()
    workspace.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
    try:
        before = survey(str(folder))
        (folder / ".git" / "hooks").mkdir(parents=True)
        (folder / ".git" / "hooks" / "x").write_text("evil")
        os.mkfifo(folder / ".git" / "pipe")
        (folder / ".envrc").symlink_to("/etc/passwd")
        opened = os.open(folder, os.O_RDONLY)
        quarantine(opened, str(workspace), leftovers(str(folder), before))
        os.close(opened)
        assert list(folder.iterdir()) == []
        (place,) = workspace.iterdir()
        assert {each.name.partition("-")[2] for each in place.iterdir()} == {".git", ".envrc"}
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(not AS_ROOT, reason="only root mounts a disk")
@pytest.mark.parametrize("way", ["large", "many", "file"])
def test_too_much_for_the_other_disk_is_not_copied(tmp_path: Path, way: str) -> None:
    """It would take hours and fill the disk of the workspaces, with what takes none itself."""
    folder, workspace = tmp_path / "folder", tmp_path / "workspace"
    folder.mkdir()
    workspace.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)
    try:
        before = survey(str(folder))
        if way == "many":
            for number in range(ACROSS_ENTRIES_MAX + 1):
                (folder / ".git" / f"{number}").mkdir(parents=True)
        else:
            (folder / ".vscode").mkdir()
            for name in (".envrc", ".vscode/x"):
                with (folder / name).open("wb") as file:
                    file.truncate(1 if way == "large" and name == ".envrc" else 1 << 40)
        opened = os.open(folder, os.O_RDONLY)
        note = quarantine(opened, str(workspace), leftovers(str(folder), before))
        os.close(opened)
        assert forbidden(folder) == []
        assert "too large for the disk of the workspace, and closed under another name" in note
        assert all(each.stat().st_mode & 0o777 == 0 for each in folder.iterdir())
        (place,) = workspace.iterdir()
        assert len([*place.iterdir()]) == (way == "large")  # the small one
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_too_many_folders_move_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that makes more folders than are searched hides nothing in the last one."""
    monkeypatch.setattr("cortex.agent.confinement.kept_names.FOLDERS_MAX", 50)
    before = survey(str(tmp_path))
    for number in range(100):
        (tmp_path / "flood" / f"{number}").mkdir(parents=True)
    (tmp_path / "flood" / "99" / ".envrc").write_text("evil")
    (tmp_path / "harmless").write_text("")
    found = leftovers(str(tmp_path), before)
    assert "flood" in found.new
    assert "harmless" not in found.new


def test_a_large_folder_takes_bounded_time(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"{number % 50}" / f"{number}").mkdir(parents=True)
    began = time.process_time()
    before = survey(str(tmp_path))
    assert leftovers(str(tmp_path), before).new == ()
    per_folder = (time.process_time() - began) / 3_000
    assert per_folder * FOLDERS_MAX < 60


def test_each_kept_name_has_its_reason() -> None:
    assert all(name == name.lower() and reason for name, reason in KEPT.items())
