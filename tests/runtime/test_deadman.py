"""The last resort: it ends the process even when no code reacts."""

import os
import subprocess
import sys

import pytest

from tests.support.eventually import WITHIN_S

CODE = """
import fcntl, os, threading
from cortex.runtime import deadman
if {full}:
    fcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)
    try:
        while os.write(2, b"x" * 4096):
            pass
    except BlockingIOError:
        fcntl.fcntl(2, fcntl.F_SETFL, 0)
deadman.arm(0.05, exit_code=7)
threading.Event().wait(30)
"""


@pytest.mark.parametrize("reader", ["gone", "asleep", "there"])
def test_deadman_ends_the_process_with_any_reader_of_stderr(reader: str) -> None:
    there, here = os.pipe()
    code = CODE.format(full=reader == "asleep")
    with subprocess.Popen([sys.executable, "-c", code], stderr=here) as process:
        os.close(here)
        if reader == "gone":
            os.close(there)
        assert process.wait(WITHIN_S) == 7
    if reader != "gone":
        output = os.read(there, 1_000_000)
        os.close(there)
        assert (b"exiting hard" in output) == (reader == "there")


TWICE = """
import os, threading
from cortex.runtime import deadman
deadman.arm(60)
deadman.arm(0.3, exit_code=7)
deadman.arm(60)
print(len(os.listdir("/proc/self/task")), flush=True)
threading.Event().wait(30)
"""


def test_earliest_of_several_deadmen_fires_from_one_thread() -> None:
    ended = subprocess.run([sys.executable, "-c", TWICE], timeout=WITHIN_S, capture_output=True)  # noqa: PLW1510
    assert (ended.returncode, ended.stdout) == (7, b"2\n")


@pytest.mark.parametrize("does", ["pass", "import time; time.sleep(60)", "while True: pass"])
def test_a_process_that_does_not_end_is_ended_hard(does: str) -> None:
    code = f"from cortex.runtime import deadman; deadman.arm(0.3)\n{does}"
    ended = subprocess.run(
        [sys.executable, "-c", code], timeout=WITHIN_S, capture_output=True, text=True, check=False
    )
    if does == "pass":
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert ended.returncode == 1
        assert ended.stderr.startswith("cortex: shutdown took longer than 0.3 s")


def test_deadman_message_can_be_set_by_the_caller() -> None:
    code = (
        "from cortex.runtime import deadman\n"
        "deadman.arm(0.2, exit_code=0, message='1 tool was left behind')\nwhile True: pass"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], timeout=WITHIN_S, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "cortex: 1 tool was left behind\n")
