"""The last resort: it ends the process even when no code reacts."""

import os
import subprocess
import sys

import pytest

from tests.support.eventually import WITHIN_S

CODE = """
import fcntl, os, threading
from cortex.runtime import process as deadman
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
def test_it_strikes_whoever_reads(reader: str) -> None:
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
from cortex.runtime import process as deadman
deadman.arm(60)
deadman.arm(0.3, exit_code=7)
deadman.arm(60)
print(len(os.listdir("/proc/self/task")), flush=True)
threading.Event().wait(30)
"""


def test_of_several_the_first_strikes_and_there_is_one_thread_for_all() -> None:
    ended = subprocess.run([sys.executable, "-c", TWICE], timeout=WITHIN_S, capture_output=True)  # noqa: PLW1510
    assert (ended.returncode, ended.stdout) == (7, b"2\n")
