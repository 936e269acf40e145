"""A receipt is taken in bounded time, and an incomplete one is never clean."""

import subprocess
from datetime import datetime
from pathlib import Path

import pytest
import trio

from cortex.agent.workspace import receipts
from cortex.agent.workspace.artefacts import ArtefactScan, look_through
from cortex.agent.workspace.receipts import take_receipt
from cortex.domain.clock import system_chance
from cortex.domain.timeouts import PARTIAL_TEXT_MAX_BYTES, TimeoutReceipt
from tests.support.eventually import WITHIN_S
from tests.support.records.receipts import an_interruption


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "workspaces" / "job"
    folder.mkdir(parents=True)
    return folder


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


async def take(workspace: Path, *, folder: Path | None = None, text: str = "") -> TimeoutReceipt:
    return await take_receipt(
        an_interruption(partial_text=text),
        workspace=workspace,
        folder=folder,
        unix_ms=system_chance().unix_ms,
    )


async def test_files_and_work_trees_of_both_folders_are_in_it(
    workspace: Path, tmp_path: Path
) -> None:
    (workspace / "report.md").write_text("half")
    (repository(workspace / "clone") / "new").write_text("1")
    (repository(tmp_path / "checkout") / "new").write_text("2")
    receipt = await take(workspace, folder=tmp_path / "checkout")
    assert [each.path for each in receipt.artefacts] == ["report.md"]
    assert [(tree.root, tree.change_count) for tree in receipt.work_trees] == [
        (str(tmp_path / "checkout"), 1),
        (str(workspace / "clone"), 1),
    ]
    assert (receipt.problem, receipt.is_clean) == (None, False)


async def test_job_without_leftovers_is_clean(workspace: Path) -> None:
    receipt = await take(workspace, folder=workspace)
    assert receipt.is_clean
    assert (receipt.artefacts, receipt.work_trees) == ((), ())


async def test_the_data_folder_in_a_checkout_is_not_the_jobs_work(
    workspace: Path, tmp_path: Path
) -> None:
    repository(tmp_path)
    (workspace.parent / "another").mkdir()
    (workspace.parent / "another" / "file").write_text("1")
    receipt = await take(workspace, folder=tmp_path)
    assert [tree.change_count for tree in receipt.work_trees] == [0]


async def test_unfinished_examination_is_not_clean(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "checkout")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(receipts, "EXAMINE_S", 0.5)
    with trio.fail_after(WITHIN_S):
        receipt = await take(workspace, folder=tmp_path / "checkout")
    assert receipt.problem == "its files could not be examined within 0.5 seconds"
    assert not receipt.is_clean


async def test_many_at_once_wait_for_their_turn(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counting(folder: Path, *, since: datetime) -> ArtefactScan:
        seen.append(trio.from_thread.run_sync(lambda: receipts._capacity().borrowed_tokens))
        return look_through(folder, since=since)

    monkeypatch.setattr(receipts, "look_through", counting)
    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(take, workspace)
    assert len(seen) == 30
    assert max(seen) == receipts.CONCURRENT_MAX


async def test_a_long_answer_is_cut(workspace: Path) -> None:
    receipt = await take(workspace, text="ü" * PARTIAL_TEXT_MAX_BYTES)
    text = receipt.interruption.partial_text
    assert text is not None
    assert len(text.encode()) <= PARTIAL_TEXT_MAX_BYTES
