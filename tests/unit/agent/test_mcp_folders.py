"""Folders of MCP servers' programs that killed pods have left behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cortex.agent.mcp.folders import PREFIX, held_folder, remove_left_behind

KILLED = """
import os, signal
from cortex.agent.mcp.folders import held_folder

with held_folder() as made:
    (made / "workspace").mkdir()
    (made / "workspace" / "link").symlink_to("/", target_is_directory=True)
    (made / "notes").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_starting_pod_removes_the_folders_of_killed_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", KILLED],
        check=False,
        timeout=60,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    others = tmp_path / "others"
    (others / "kept").mkdir(parents=True)
    (tmp_path / f"{PREFIX}link").symlink_to(others, target_is_directory=True)
    with held_folder() as held:
        assert remove_left_behind() == 0, "a moment ago its process may have been about to lock it"
        assert remove_left_behind(young_s=0.0) == 1
        assert held.is_dir()
    assert not left.exists()
    assert not held.exists()
    assert (others / "kept").is_dir()
