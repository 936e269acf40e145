"""Files that a step left in the workspace are found under any name, and set aside unharmed."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cortex.agent.workspace import artefacts
from cortex.agent.workspace.artefacts import ArtefactScan, look_through, set_aside
from cortex.domain.timeouts import Artefact

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
HOSTILE = "new\nline \x1b[2J ü"


def paths(found: ArtefactScan) -> set[str]:
    return {each.path for each in found.artefacts}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspaces" / "job"
    folder.mkdir(parents=True)
    return folder


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def instant_after(path: Path) -> datetime:
    """An instant just after a file's change; later writes are newer."""
    later_s = path.stat().st_ctime + 2 * artefacts.CLOCK_STEP_S
    probe = path.parent.parent / "probe"
    while write(probe).stat().st_ctime <= later_s:
        probe.unlink()
    probe.unlink()
    return datetime.fromtimestamp(later_s, UTC)


def test_files_changed_since_a_time_are_found_with_sizes(workspace: Path) -> None:
    since = instant_after(write(workspace / "old"))
    write(workspace / "new", "12345")
    write(workspace / "deep" / HOSTILE, "123")
    found = look_through(workspace, since=since)
    assert {(each.path, each.size_bytes) for each in found.artefacts} == {
        ("new", 5),
        (f"deep/{HOSTILE}", 3),
    }
    assert all(each.changed_at >= since for each in found.artefacts)
    assert (found.work_trees, found.problem) == ((), None)


def test_only_files_made_since_are_new(workspace: Path) -> None:
    since = instant_after(write(workspace / "of-a-committed-step"))
    write(workspace / "of-a-committed-step", "and of the interrupted one")
    write(workspace / "new")
    found = look_through(workspace, since=since)
    assert {each.path: each.is_new for each in found.artefacts} == {
        "of-a-committed-step": False,
        "new": True,
    }


def test_the_runtimes_own_file_is_no_artefact(workspace: Path) -> None:
    write(workspace / "timeouts.jsonl")
    write(workspace / "sub" / "timeouts.jsonl")
    assert paths(look_through(workspace, since=LONG_AGO)) == {"sub/timeouts.jsonl"}


def test_forged_modification_time_hides_no_file(workspace: Path) -> None:
    since = instant_after(write(workspace / "old"))
    os.utime(write(workspace / "new"), (0, 0))
    assert paths(look_through(workspace, since=since)) == {"new"}


def test_links_pipes_and_strange_bytes_do_no_harm(workspace: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "secret")
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    (workspace / "file-link").symlink_to(tmp_path / "elsewhere" / "secret")
    os.mkfifo(workspace / "pipe")
    write(Path(os.fsdecode(os.fsencode(workspace) + b"/\xff\xfe")))
    assert paths(look_through(workspace, since=LONG_AGO)) == {"\ufffd\ufffd"}


def test_a_workspace_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert look_through(tmp_path / "never", since=LONG_AGO) == ArtefactScan()


def test_a_workspace_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    found = look_through(write(tmp_path / "file"), since=LONG_AGO)
    assert found.problem == "the workspace cannot be read: Not a directory"


def test_git_work_trees_are_listed_separately(workspace: Path) -> None:
    (workspace / "clone" / ".git").mkdir(parents=True)
    write(workspace / "clone" / "inside")
    write(workspace / "deep" / "linked" / ".git", "gitdir: ../elsewhere")
    write(workspace / "outside")
    found = look_through(workspace, since=LONG_AGO)
    assert paths(found) == {"outside"}
    assert set(found.work_trees) == {workspace / "clone", workspace / "deep" / "linked"}


def test_long_list_of_artefacts_keeps_the_newest(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "LISTED_MAX", 2)
    for name in ("1", "2", "3"):
        instant_after(write(workspace / name))
    assert [each.path for each in look_through(workspace, since=LONG_AGO).artefacts] == ["3", "2"]


@pytest.mark.parametrize(
    "limit, what",
    [
        ("VISITED_MAX", "more than 2 files"),
        ("DEPTH_MAX", "more than 2 folders deep"),
        ("WORK_TREES_MAX", "holds 3 git work trees"),
    ],
)
def test_incomplete_walk_reports_its_limit(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    monkeypatch.setattr(artefacts, limit, 2)
    if limit == "WORK_TREES_MAX":
        for name in "abc":
            (workspace / name / ".git").mkdir(parents=True)
    else:
        write(workspace / "a" / "b" / "c" / "d" / "file")
        for name in "123":
            write(workspace / name)
    assert what in (look_through(workspace, since=LONG_AGO).problem or "")


def test_set_aside_files_are_moved_unchanged(workspace: Path, tmp_path: Path) -> None:
    write(workspace / "deep" / HOSTILE, "abc")
    write(workspace / "kept")
    left = look_through(workspace, since=LONG_AGO).artefacts
    gone = Artefact(path="gone/away", size_bytes=1, changed_at=LONG_AGO)
    chosen = [each for each in left if each.path != "kept"]
    aside = tmp_path / "aside" / "1"
    assert set_aside(workspace, [*chosen, gone], into=aside) == [f"deep/{HOSTILE}"]
    assert (aside / "deep" / HOSTILE).read_text() == "abc"
    assert paths(look_through(workspace, since=LONG_AGO)) == {"kept"}
    with pytest.raises(FileExistsError):
        set_aside(workspace, chosen, into=aside)


def test_set_aside_never_leaves_the_workspace(workspace: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "secret")
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    now = LONG_AGO + timedelta(seconds=1)
    for number, path in enumerate(("link/secret", "../../elsewhere/secret", "..")):
        chosen = Artefact(path=path, size_bytes=1, changed_at=now)
        assert set_aside(workspace, [chosen], into=tmp_path / "aside" / str(number)) == []
    assert (tmp_path / "elsewhere" / "secret").exists()
