"""`python stage.py STATUS_FILE LIMIT_S COMMAND…`: runs one stage of a gate and measures it.

Writes `STATUS WALL_S CPU_S` to the file, in whole seconds. CPU is that of the command and of all
that it started, servers that detached themselves included: orphans become children of this process
(on Linux). A stage that exceeds its limit is killed and has status 124. Uses the standard library
only: it runs before anything is installed.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36
TIMED_OUT: Final = 124
KILL_AFTER_S: Final = 10
ORPHANS_S: Final = 5.0
"""How long to wait for orphans after the command: servers that are still stopping."""
POLL_S: Final = 0.02


def run(limit_s: int, command: list[str]) -> tuple[int, float, float]:
    """Return the command's exit status, as of a shell, and seconds of wall clock and CPU."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    child = subprocess.Popen(command, process_group=0).pid
    causes: list[int] = []

    def end(cause: int, _: object) -> None:
        causes.append(cause)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGTERM if len(causes) == 1 else signal.SIGKILL)
        signal.alarm(KILL_AFTER_S)

    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.alarm(limit_s)
    ended = waited = 0
    while ended != child:  # orphans end in between
        ended, waited = os.waitpid(-1, 0)
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(waited)
    wall_s = time.monotonic() - began
    _wait_for_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    timed_out = causes[:1] == [signal.SIGALRM]
    status = TIMED_OUT if timed_out else code if code >= 0 else 128 - code
    return status, wall_s, used.ru_utime + used.ru_stime


def _wait_for_orphans() -> None:
    give_up_at = time.monotonic() + ORPHANS_S
    try:
        while time.monotonic() < give_up_at:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(POLL_S)
    except ChildProcessError:
        return


def main() -> int:
    """Run the stage of the command line."""
    file, limit_s, *command = sys.argv[1:]
    status, wall_s, cpu_s = run(int(limit_s), command)
    Path(file).write_text(f"{status} {wall_s:.0f} {cpu_s:.0f}\n", "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
