"""A file of the working folder widens nothing, and settings that others wrote are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from cortex.config import FIELDS, load
from cortex.domain.errors import UsageError

WIDENING = {
    "unsafe_run_command": "true",
    "dsn": '"postgresql://evil.example/cortex?password=hunter2"',
    "data": '"/tmp/evil"',
    "prices": '"free.toml"',
    "models": '{anthropic = {kind = "anthropic", base_url = "https://evil.example"}}',
    "http": '"0.0.0.0:8080"',
    "public_url": '"https://evil.example"',
    "callback_secret": '"known to whoever wrote this file"',
    "http_folders": '"/"',
    "http_proxies": '"0.0.0.0/0"',
    "tenant": '"bolt"',
    "app": '"evil.py"',
    "isolated_mb": "1048576",
    "workspace_mb": "1048576",
    "isolated_cpu_s": "1000000",
    "logs_s": "60",
    "outbox_sent_s": "0",
}
NOBODY = 65534


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    path = Path(platformdirs.user_config_dir("cortex")) / "config.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_each_setting_says_whether_a_project_may_set_it() -> None:
    assert {each for each, field in FIELDS.items() if not field.metadata["project"]} == set(
        WIDENING
    )


@pytest.mark.parametrize("name", WIDENING)
def test_a_projects_file_does_not_widen(user_file: Path, project: Path, name: str) -> None:
    (project / "cortex.toml").write_text(f"{name} = {WIDENING[name]}\n")
    with pytest.raises(UsageError) as caught:
        load({}, environ={}, cwd=project)
    assert f"{project}/cortex.toml: setting {name} " in caught.value.message
    assert f"CORTEX_{name.upper()}" in str(caught.value.hint)
    assert str(user_file) in str(caught.value.hint)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"
    user_file.write_text(f"{name} = {WIDENING[name]}\n")
    (project / "cortex.toml").unlink()
    assert getattr(load({}, environ={}, cwd=project), name) != FIELDS[name].default


def test_a_command_in_a_hostile_folder_says_so(user_file: Path, project: Path) -> None:
    (project / "cortex.toml").write_text("unsafe_run_command = true\n")
    argv = [sys.executable, "-m", "cortex", "config", "show", "--json"]
    ended = subprocess.run(argv, cwd=project, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "setting unsafe_run_command" in json.loads(ended.stderr)["error"]["message"]


@pytest.mark.parametrize("in_user_file", [True, False])
def test_a_file_that_every_user_may_write_is_refused(
    user_file: Path, project: Path, in_user_file: bool
) -> None:
    path = user_file if in_user_file else project / "cortex.toml"
    path.write_text("slots = 7\n")
    path.chmod(0o666)
    with pytest.raises(UsageError, match="may be written by every user"):
        load({}, environ={}, cwd=project)
    path.chmod(0o644)
    assert load({}, environ={}, cwd=project).slots == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("way", ["file", "link", "hard link"])
@pytest.mark.parametrize("in_user_file", [True, False])
def test_a_file_of_another_user_is_refused(
    user_file: Path, project: Path, way: str, in_user_file: bool
) -> None:
    path = user_file if in_user_file else project / "cortex.toml"
    theirs = path if way == "file" else project / "theirs"
    theirs.write_text("slots = 7\n")
    os.chown(theirs, NOBODY, NOBODY)
    if way == "link":
        path.symlink_to(theirs)
    elif way == "hard link":
        path.hardlink_to(theirs)
    with pytest.raises(UsageError, match=f"belongs to user {NOBODY}, not to user 0 or root"):
        load({}, environ={}, cwd=project)


@pytest.mark.skipif(os.geteuid() == 0, reason="root owns what it writes")
def test_a_file_of_root_is_read(user_file: Path, project: Path) -> None:
    (project / "cortex.toml").symlink_to("/etc/hostname")
    with pytest.raises(UsageError) as caught:  # read, and no TOML of settings
        load({}, environ={}, cwd=project)
    assert "belongs to" not in caught.value.message


def test_a_named_pipe_holds_up_no_command(user_file: Path, project: Path) -> None:
    os.mkfifo(project / "cortex.toml")
    assert load({}, environ={}, cwd=project).slots == 1000


ABSURD = {
    "huge": (b"", "has more than 16,384 bytes"),
    "nested": (b"slots = " + b"[" * 10_000, "nested too deeply"),
    "long name": (b"slots." + b"a." * 2_000 + b"b = 1", "setting slots is not a whole number"),
    "no UTF-8": (b"\xff\xfes\0l\0", "can't decode"),
}


@pytest.mark.parametrize("way", ABSURD)
def test_an_absurd_file_is_one_error(user_file: Path, project: Path, way: str) -> None:
    content, message = ABSURD[way]
    path = project / "cortex.toml"
    path.write_bytes(content)
    if not content:
        os.truncate(path, 1 << 40)
    with pytest.raises(UsageError) as caught:
        load({}, environ={}, cwd=project)
    assert str(path) in caught.value.message
    assert message in caught.value.message
