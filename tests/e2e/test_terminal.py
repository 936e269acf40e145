"""`cortex up` in a terminal: Ctrl-C leaves it as it was found, and its end drains the pod."""

import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define

from chaos.cluster.fork_server import Process
from tests.support.eventually import WITHIN_S
from tests.support.pods import APP, FORKS, ROOT, Pods, end_of_pod, environment, until_pods
from tests.support.records.rows import job_row, submit, until_job, until_status
from tests.support.terminal import launch

CTRL_C = b"\x03"
DRAIN_S = 40.0
ESCAPE = re.compile(rb"\x1b(?!\[[0-9;]*m)[^a-zA-Z]*[a-zA-Z]?")
"""Escape sequences other than colours."""


@define
class Terminal:
    """A pod in a pseudo-terminal, as its controlling terminal."""

    process: Process
    ours: int
    theirs: int
    shown: bytes = b""

    def until(self, wanted: bytes, *, within_s: float = WITHIN_S) -> None:
        """Read until a text was shown."""
        give_up_at = time.monotonic() + within_s
        while wanted not in self.shown:
            assert time.monotonic() < give_up_at, self.shown.decode(errors="replace")
            self.read(0.1)

    def read(self, within_s: float) -> None:
        if select.select([self.ours], [], [], within_s)[0]:
            self.shown += os.read(self.ours, 65_536)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def close(self) -> None:
        """Be gone, as a window that is closed."""
        os.close(self.ours)
        self.ours = -1

    def exit_code(self, *, within_s: float = WITHIN_S) -> int:
        code = self.process.wait(within_s)
        if self.ours >= 0:
            self.read(0.0)
        return code


@pytest.fixture
def terminal(database: str, tmp_path: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    # A session of its own, whose controlling terminal this is: Ctrl-C becomes SIGINT.
    named = {"TERM": "xterm-256color", launch.CONTROLLING: "1"}
    process = FORKS.start(
        ["cortex", "up", "--app", APP],
        env=environment(database, tmp_path, named, **end_of_pod(DRAIN_S)),
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        module=launch.__name__,
    )
    terminal = Terminal(process, ours, theirs)
    yield terminal
    process.kill()
    process.wait()
    for each in (terminal.ours, theirs):
        if each >= 0:
            os.close(each)


@pytest.mark.smoke
def test_ctrl_c_drains_and_leaves_the_terminal_clean(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.theirs)
    terminal.until(b"Ctrl-C drains it")
    terminal.press(CTRL_C)
    assert terminal.exit_code() == 0
    assert termios.tcgetattr(terminal.theirs) == before
    assert_clean(terminal.shown)


def test_ctrl_c_twice_hands_back_at_once(database: str, terminal: Terminal, tmp_path: Path) -> None:
    before = termios.tcgetattr(terminal.theirs)
    terminal.until(b"is ready after")
    job_id = submit(database, "gated", {"gate": str(tmp_path / "never")})
    until_job(database, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    terminal.press(CTRL_C)
    terminal.until(b"draining")
    terminal.press(CTRL_C)
    assert terminal.exit_code(within_s=DRAIN_S / 2) == 128 + signal.SIGINT
    until_job(database, job_id, lambda row: row["task_state"] == "READY", "handed back")
    assert termios.tcgetattr(terminal.theirs) == before
    assert_clean(terminal.shown)


def test_a_terminal_that_is_closed_drains(
    database: str, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.until(b"is ready after")
    gate = tmp_path / "gate"
    job_id = submit(database, "gated", {"gate": str(gate)})
    until_job(database, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    terminal.close()
    until_pods(database, DRAINING=1)
    terminal.process.send_signal(signal.SIGHUP)  # a shell passes it on: that is no reason to hurry
    gate.touch()
    assert terminal.exit_code() == 0
    row = job_row(database, job_id)
    assert (row["status"], row["attempt"]) == ("COMPLETED", 1)


def test_under_nohup_a_pod_outlives_its_terminal(pods: Pods) -> None:
    pods.is_forked = False  # the server of forks takes no signal's handling over
    with nobody_hangs_up():
        pod = pods.start(**end_of_pod(DRAIN_S))
    pod.signal(signal.SIGHUP)
    job_id = submit(pods.dsn, "noop")
    assert until_status(pods.dsn, job_id, "COMPLETED")["pod"] == pod.name
    pod.signal(signal.SIGTERM)
    assert pod.exit_code() == 0


@contextmanager
def nobody_hangs_up() -> Iterator[None]:
    """Ignore SIGHUP in started programs, as `nohup` does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def assert_clean(shown: bytes) -> None:
    """Whole lines, colours put back, no other control, no traceback."""
    assert shown.endswith(b"\n")
    assert b"Traceback" not in shown
    assert not ESCAPE.findall(shown)
    colours = re.findall(rb"\x1b\[[0-9;]*m", shown)
    assert not colours or colours[-1] in {b"\x1b[0m", b"\x1b[m"}
