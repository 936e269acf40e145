"""Folders of a pod's machine: those HTTP may name, and access to workspaces."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from cortex.agent.secrets import Secrets
from cortex.agent.tools import toolbox
from cortex.config import Settings
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.http.folder import confine
from cortex.jobs.run_agent import _readable
from cortex.runtime.pod_parts import standard_parts
from tests.support.records.rows import new_id


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "allowed" / "inner").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    return tmp_path / "allowed"


def named(folder: Path | str, *roots: Path) -> dict[str, Any]:
    return confine("run_agent", {"prompt": "p", "folder": str(folder)}, roots)


def test_by_default_no_folder_may_be_named(root: Path) -> None:
    assert Settings().folder_roots == ()
    with pytest.raises(ForbiddenError, match=r"folder .* is outside .*\n?.*http_folders"):
        named(root, *Settings().folder_roots)
    assert confine("run_agent", {"prompt": "p"}, ()) == {"prompt": "p"}
    assert confine("other", {"folder": "/"}, ()) == {"folder": "/"}


def test_a_folder_in_a_root_is_let_through_with_its_root(root: Path) -> None:
    for folder in (root, root / "inner", root / "inner" / ".." / "inner"):
        assert named(folder, Path("/nowhere"), root)["within"] == str(root)


def test_no_folder_name_leads_out_of_a_root(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    beside = root.with_name("allowed-too")
    for folder in (
        root / "..",
        root / "link",
        root / "inner/../../secret",
        beside,
        "allowed",
        "\0",
    ):
        with pytest.raises(ForbiddenError):
            named(folder, root)


def test_a_client_names_no_root_of_its_own(root: Path) -> None:
    given = {"prompt": "p", "folder": str(root.parent / "secret"), "within": "/"}
    with pytest.raises(ForbiddenError):
        confine("run_agent", given, [root])
    assert "within" not in confine("run_agent", {"prompt": "p", "within": "/"}, [root])


def test_a_link_that_changed_since_the_submission_is_refused(root: Path) -> None:
    folder = root / "work"
    folder.mkdir()
    within = named(folder, root)["within"]
    assert _readable(str(folder), within) == folder.resolve()
    folder.rmdir()
    folder.symlink_to(root.parent / "secret")
    with pytest.raises(UsageError, match="leads out of"):
        _readable(str(folder), within)
    assert _readable(str(folder), None) == folder, "who submits on the machine may name any"


def test_a_root_is_a_full_path() -> None:
    assert Settings(http_folders="/srv/a:/srv/b").folder_roots == (Path("/srv/a"), Path("/srv/b"))
    with pytest.raises(UsageError, match="'srv', which is not a full path"):
        Settings(http_folders="/srv/a:srv")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_workspace_is_closed_to_others(tmp_path: Path) -> None:
    workspace = tmp_path / "data" / "workspaces" / "job"
    assert toolbox._made(workspace, Secrets.of(None)) == workspace
    passable = 0o711 if os.geteuid() == 0 else 0o700
    modes = [mode(each) for each in (workspace, workspace.parent, workspace.parent.parent)]
    assert modes == [0o700, passable, passable]


def test_workspaces_of_a_former_version_are_closed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspaces" / "job"
    workspace.mkdir(parents=True)
    for each in (workspace, workspace.parent):
        each.chmod(0o755)
    toolbox._made(workspace, Secrets.of(None))
    assert mode(workspace) == 0o700
    assert mode(workspace.parent) & 0o066 == 0


def test_starting_pod_closes_workspaces_of_a_former_version(tmp_path: Path) -> None:
    workspaces, elsewhere = tmp_path / "data" / "workspaces", tmp_path / "elsewhere"
    ended, beside = workspaces / str(new_id()), workspaces / "postgres"
    link = workspaces / str(new_id())
    for each in (ended / "inner", elsewhere, beside):
        each.mkdir(parents=True)
    for each in (workspaces, ended, elsewhere, beside):
        each.chmod(0o755)
    link.symlink_to(elsewhere)
    standard_parts(workspaces=workspaces)
    assert mode(ended) == 0o700
    assert mode(workspaces) & 0o066 == 0
    assert mode(elsewhere) == mode(beside) == 0o755


def test_a_pod_does_not_start_when_the_workspaces_cannot_be_used(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("")
    with pytest.raises(UsageError, match=f"cannot use {data}/workspaces: Not a directory"):
        standard_parts(workspaces=data / "workspaces")


def test_a_pod_leaves_the_workspaces_of_another_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path.stat().st_uid
    workspace = tmp_path / str(new_id())
    workspace.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    standard_parts(workspaces=tmp_path)
    assert mode(workspace) == 0o755
