"""`python -m tests.support.terminal.launch WHAT …` starts a program as a terminal does.

WHAT is a module, or `-` before any other command. `CONTROLLING` in the environment makes the
terminal its controlling one; `NOHUP` lets it ignore the hangup.
"""

import fcntl
import os
import runpy
import signal
import sys
import termios
from typing import Final

CONTROLLING: Final = "TEST_CONTROLLING"
NOHUP: Final = "TEST_NOHUP"
PROGRAM: Final = "-"

if __name__ == "__main__":
    if os.environ.pop(CONTROLLING, None):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if os.environ.pop(NOHUP, None):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    name = sys.argv.pop(1)
    if name == PROGRAM:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 -- as a shell does
    runpy.run_module(name, run_name="__main__", alter_sys=True)
