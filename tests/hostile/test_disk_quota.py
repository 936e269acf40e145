"""A job's workspace takes no more disk than its quota, whatever its tools and programs write."""

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.process import Completed, run_confined
from cortex.agent.confinement.quota import Quota, used_by
from cortex.agent.tools.tool import ToolContext
from cortex.agent.tools.write_file import write_file
from cortex.agent.workspace.fitting import fitted, keep_text
from cortex.domain.confinement import Confinement
from cortex.domain.errors import RejectedError
from tests.support.pod_place import CASES, available, open_up
from tests.support.records.rows import new_id

MIB = 1 << 20
AS_ME = [means for means, user in CASES if user in {"root", "this user"}]
SMALL = Quota(4 * MIB, 500)
ROOMY = Quota(256 * MIB, 500)
"""For entries that take a block each, as folders do on some file systems."""

WRITING = {
    "one file": ("dd if=/dev/zero of=f bs=1M count=100; sleep 20", "took more than 4 MiB"),
    "many files": (
        "i=0; while :; do i=$((i+1)); dd if=/dev/zero of=f$i bs=1M count=1; sleep 0.01; done",
        "took more than 4 MiB",
    ),
    "below": (
        "mkdir -p a/b/c; dd if=/dev/zero of=a/b/c/f bs=1M count=8; sleep 20",
        "took more than 4 MiB",
    ),
    "in the background": (
        "(dd if=/dev/zero of=f bs=1M count=8; sleep 20) & sleep 20",
        "took more than 4 MiB",
    ),
    "many empty files": (
        "i=0; while :; do i=$((i+1)); : > f$i; done",
        "had more than 500 files",
    ),
    "many folders": (
        "i=0; while :; do i=$((i+1)); mkdir d$i; done",
        "had more than 500 files",
    ),
    "many links": (
        ": > f; i=0; while :; do i=$((i+1)); ln f l$i; done",
        "had more than 500 files",
    ),
}


def run(means: Confinement, workspace: Path, script: str, quota: Quota = SMALL) -> Completed:
    async def main() -> Completed:
        launch = await trio.to_thread.run_sync(
            partial(
                Confiner(means=means).launch,
                workspace=workspace,
                folder=workspace,
                has_network=False,
                quota=quota,
            )
        )
        return await run_confined(
            ["sh", "-c", script], launch=launch, timeout_s=60, output_max_bytes=10_000
        )

    return trio.run(main)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path.resolve() / "workspace"
    workspace.mkdir()
    open_up(workspace)
    return workspace


@pytest.mark.parametrize("script, reason", WRITING.values(), ids=WRITING)
def test_a_program_that_takes_too_much_is_ended(workspace: Path, script: str, reason: str) -> None:
    means = next((each for each in AS_ME if available(each, os.geteuid())), None)
    if means is None:
        pytest.skip("this machine has no means to confine programs")
    done = run(means, workspace, script, ROOMY if "files" in reason else SMALL)
    assert (done.exit_code, done.timed_out) == (-9, False)
    assert reason in done.stderr
    assert used_by(workspace).bytes < 120 * MIB


@pytest.mark.parametrize("means", AS_ME)
def test_each_means_ends_it(workspace: Path, means: Confinement) -> None:
    if not available(means, os.geteuid()):
        pytest.skip(f"this machine has no {means}")
    done = run(means, workspace, WRITING["below"][0])
    assert (done.exit_code, done.timed_out) == (-9, False)
    assert "took more than 4 MiB" in done.stderr


@pytest.mark.parametrize("means", AS_ME)
def test_a_closed_folder_hides_nothing(workspace: Path, means: Confinement) -> None:
    if not available(means, os.geteuid()):
        pytest.skip(f"this machine has no {means}")
    hidden = "mkdir d; chmod 300 d; dd if=/dev/zero of=d/f bs=1M count=8; sleep 20"
    done = run(means, workspace, hidden)
    assert (done.exit_code, done.timed_out) == (-9, False)
    assert "took more than 4 MiB" in done.stderr or "its size is unknown" in done.stderr


def test_a_full_workspace_can_be_emptied_and_not_filled(workspace: Path) -> None:
    means = next((each for each in AS_ME if available(each, os.geteuid())), None)
    if means is None:
        pytest.skip("this machine has no means to confine programs")
    (workspace / "old").write_bytes(b"x" * 6 * MIB)
    open_up(workspace)
    assert run(means, workspace, "sleep 0.3; echo read").stdout == "read\n"
    more = run(means, workspace, "dd if=/dev/zero of=f bs=1M count=3; sleep 20")
    assert more.exit_code == -9
    assert run(means, workspace, "rm -f old f").exit_code == 0
    assert run(means, workspace, "dd if=/dev/zero of=g bs=1M count=2; sleep 0.3").exit_code == 0


def test_tools_write_no_more(workspace: Path) -> None:
    context = ToolContext(
        job_id=new_id(),
        attempt=1,
        call_id="1",
        workspace=workspace,
        confiner=Confiner(means=Confinement.NONE),
        quota=SMALL,
    )

    async def write_until_full() -> None:
        for number in range(10):
            await trio.to_thread.run_sync(write_file.run, context, f"f{number}", "x" * MIB)

    with pytest.raises(RejectedError, match="do not fit into the job's workspace"):
        trio.run(write_until_full)
    assert used_by(workspace).bytes <= SMALL.bytes_max
    with pytest.raises(RejectedError, match="do not fit"):
        keep_text(workspace, "t", "y" * MIB, quota=SMALL)


async def test_outputs_are_kept_no_more(workspace: Path) -> None:
    (workspace / "old").write_bytes(b"x" * 3 * MIB)
    with pytest.raises(RejectedError, match="do not fit"):
        await fitted("z" * 2 * MIB, workspace=workspace, key="1 t", quota=SMALL)
    effect = await fitted(
        "z" * 2 * MIB, workspace=workspace, key="1 t", quota=SMALL, is_effect=True
    )
    assert "do not fit" in effect["problem"]


def test_too_many_files_are_refused(workspace: Path) -> None:
    for number in range(500):
        (workspace / f"{number}").touch()
    with pytest.raises(RejectedError, match="has 500 files already"):
        SMALL.check(workspace, 1, what="x")
