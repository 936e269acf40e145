"""A submission beside a pod that starts: it waits for the database, bounded, with one line."""

from pathlib import Path

import pytest

from cortex.cli import starting_pod
from cortex.postgres.embedded.cluster import FileLock
from cortex.postgres.embedded.server import is_starting
from tests.support.command_line import Cortex


def test_the_wait_is_short_if_no_pod_starts(
    cortex_nowhere: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting_pod, "GRACE_S", 0.2)
    folder = cortex_nowhere.folder / "data"
    ended = cortex_nowhere("jobs", "submit", "sweep_zombies", "--data", str(folder))
    waiting, error, _ = ended.err.splitlines()
    assert (ended.code, waiting) == (3, "no database yet: waiting for a pod that starts")
    assert error == f"error: there is no database yet in {folder}"
    assert not folder.exists()


def test_a_server_that_starts_holds_its_lock(tmp_path: Path) -> None:
    assert not is_starting(tmp_path / "none")
    with FileLock(tmp_path / "start.lock") as lock:
        assert not is_starting(tmp_path)
        assert lock.try_exclusive()
        assert is_starting(tmp_path)
    assert not is_starting(tmp_path)
