"""`cortex up` in a terminal: Ctrl-C leaves it as it was found."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import define

from tests.support.pods import APP, ROOT, end_of_pod, environment
from tests.support.rows import submit, until_job

CTRL_C = b"\x03"
ESCAPE = re.compile(rb"\x1b(?!\[[0-9;]*m)[^a-zA-Z]*[a-zA-Z]?")
"""Escape sequences other than colours."""


@define
class Terminal:
    """A pod in a pseudo-terminal, as its controlling terminal."""

    process: "subprocess.Popen[bytes]"
    ours: int
    theirs: int
    shown: bytes = b""

    def until(self, wanted: bytes, *, within_s: float = 20.0) -> None:
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

    def exit_code(self, *, within_s: float) -> int:
        code = self.process.wait(within_s)
        self.read(0.0)
        return code


@pytest.fixture
def terminal(database: str, tmp_path: Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cortex", "up", "--app", APP]
    process = subprocess.Popen(
        # A session of its own, whose controlling terminal this is: Ctrl-C becomes SIGINT.
        ["setsid", "--ctty", *command],
        env=environment(database, tmp_path, {"TERM": "xterm-256color"}, **end_of_pod(20)),
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    yield Terminal(process, ours, theirs)
    process.kill()
    process.wait()
    os.close(ours)
    os.close(theirs)


def test_ctrl_c_drains_and_leaves_the_terminal_clean(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.theirs)
    terminal.until(b"is ready after")
    assert b"Ctrl-C drains it" in terminal.shown
    terminal.press(CTRL_C)
    assert terminal.exit_code(within_s=5) == 0
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
    assert terminal.exit_code(within_s=5) == 128 + signal.SIGINT
    until_job(database, job_id, lambda row: row["task_state"] == "READY", "handed back")
    assert termios.tcgetattr(terminal.theirs) == before
    assert_clean(terminal.shown)


def assert_clean(shown: bytes) -> None:
    """Whole lines, colours put back, no other control, no traceback."""
    assert shown.endswith(b"\n")
    assert b"Traceback" not in shown
    assert not ESCAPE.findall(shown)
    colours = re.findall(rb"\x1b\[[0-9;]*m", shown)
    assert not colours or colours[-1] in {b"\x1b[0m", b"\x1b[m"}
