"""A pod that is the first process of a container: only its own handler ends it on SIGTERM."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.pods import APP, ROOT, Pod, Pods, environment

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def why_not() -> str | None:
    """Why no process here can be the first one of a namespace; None if it can."""
    if shutil.which("unshare") is None:
        return "there is no unshare"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return tried.stderr.strip() or "unshare fails" if tried.returncode else None


def launch(pods: Pods, app: str) -> Pod:
    """Start a pod whose process has number 1."""
    if reason := why_not():
        pytest.skip(reason)
    log_path = pods.folder / "pod-1.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*UNSHARE, sys.executable, "-m", "cortex", "up", "--app", app, "--json"],
            env=environment(pods.dsn, pods.folder, pods.environment),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    pod = Pod(process, log_path)
    pods.all.append(pod)
    return pod


def terminate_inside(pod: Pod) -> None:
    """Send SIGTERM as an orchestrator does: from outside, to the first process."""
    (first,) = children(pod.process.pid)
    os.kill(first, signal.SIGTERM)


def children(pid: int) -> list[int]:
    """The children of a process, including those that have ended and were not reaped."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    """The letter of its state; Z: it has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_first_process_drains_on_sigterm(pods: Pods) -> None:
    pod = launch(pods, APP)
    pod.until_ready()
    terminate_inside(pod)
    assert pod.exit_code() == 0


def test_first_process_reaps_orphans(pods: Pods, tmp_path: Path) -> None:
    app = tmp_path / "orphans.py"
    app.write_text(
        "import os, subprocess\n"
        "subprocess.run(['sh', '-c', '(sleep 0.2; exit 3) &'], check=True, stdin=-3)\n"
    )
    pod = launch(pods, str(app))
    pod.until_ready()
    (first,) = children(pod.process.pid)
    eventually(lambda: len(children(first)) == 1, what="the orphan is gone")
    assert all(state_of(child) != "Z" for child in children(first))
    terminate_inside(pod)
    assert pod.exit_code() == 0


def test_first_process_ends_on_sigterm_during_its_start(pods: Pods, tmp_path: Path) -> None:
    """Without a handler the kernel drops the signal, and the start continues."""
    begun = tmp_path / "begun"
    app = tmp_path / "slow_to_import.py"
    app.write_text(f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(60)\n")
    pod = launch(pods, str(app))
    eventually(begun.exists, what="it imports the app")
    terminate_inside(pod)
    assert pod.exit_code() == 128 + signal.SIGTERM
