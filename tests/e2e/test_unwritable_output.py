"""A pod whose log disk is full, or whose outputs are closed, works and ends as ever."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cortex.cli.screen.log_stream import PIECE, LogStream
from tests.support.eventually import WITHIN_S
from tests.support.pods import APP, ROOT, environment, until_pods
from tests.support.records.rows import submit, until_jobs

FULL = Path("/dev/full")
UNKNOWN = "00000000-0000-7000-8000-000000000000"


@contextmanager
def pod_with(redirections: str, dsn: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a pod by a shell that redirects its output; killed if the block leaves it."""
    command = f'exec "$0" -m cortex up --app {APP} {redirections}'
    process = subprocess.Popen(
        ["sh", "-c", command, sys.executable],
        cwd=ROOT,
        env=environment(dsn, folder, {}),
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("redirections", [f">{FULL} 2>{FULL}", ">&- 2>&-"], ids=["full", "closed"])
def test_pod_with_unwritable_output_runs_jobs_and_exits_with_0(
    redirections: str, database: str, tmp_path: Path
) -> None:
    with pod_with(redirections, database, tmp_path) as pod:
        until_pods(database, READY=1)
        submit(database, "noop", {})
        until_jobs(database, "status = 'COMPLETED'", count=1)
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(WITHIN_S) == 0


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments, code, redirection",
    [
        ("no-such-command", 2, ""),
        ("no-such-command", 2, f"2>{FULL}"),
        ("no-such-command", 2, "2>&-"),
        ("no-such-command", 2, "2>&1 >/dev/null | true"),
        (f"jobs show {UNKNOWN}", 3, f"2>{FULL}"),
        ("version --json", 0, "2>&-"),
    ],
)
def test_unwritable_stderr_changes_no_exit_code(
    arguments: str, code: int, redirection: str, database: str, tmp_path: Path
) -> None:
    command = f'(trap "" PIPE; "$0" -m cortex {arguments}; echo $? >code) {redirection}'
    subprocess.run(
        ["sh", "-c", command, sys.executable],
        cwd=tmp_path,
        env=environment(database, tmp_path, {}),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert int((tmp_path / "code").read_text()) == code


def test_stalled_reader_of_the_log_does_not_block_the_pod() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    stream = LogStream(writing)
    for _ in range(64):  # a pipe holds 16 of them
        assert stream.write("x" * PIECE) == PIECE
    held = os.read(reading, 1 << 20)
    assert set(held) == {ord("x")}
    stream.write("news\n")
    text = os.read(reading, 1 << 20).decode()
    assert text == "48 earlier pieces of log could not be written\nnews\n"
    os.close(reading)
    stream.write("nobody is there\n")
    os.close(writing)
    stream.write("and now there is nothing\n")
