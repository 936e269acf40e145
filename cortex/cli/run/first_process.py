"""The first process of a container: starts the command as its child and reaps zombies.

The kernel makes process 1 the parent of every orphan in its namespace (tools may leave many) and
drops signals without a handler. So process 1 only forwards signals and waits; the command is an
ordinary process. If the image has an init such as tini, that is process 1.
"""

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Final

PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
)
STDIN: Final = 0


def go_on_as_child() -> None:
    """Return in a child process; this one ends with the child's exit code.

    The child leads a process group of its own and has the terminal: Ctrl-C reaches it once.
    """
    child = 0
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if not child:
            early.append(number)
            return
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    child = os.fork()
    if not child:
        for each, handler in before.items():
            signal.signal(each, handler)
        _lead_group()
        for came in early:
            signal.raise_signal(came)
        return
    for came in tuple(early):
        pass_on(came, None)
    os._exit(_until_ended(child))


def _lead_group() -> None:
    os.setpgid(0, 0)
    if os.isatty(STDIN):
        # From a background group, this call stops a process that does not ignore the signal.
        handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):  # a terminal that is not ours to control
            os.tcsetpgrp(STDIN, os.getpid())
        signal.signal(signal.SIGTTOU, handler)


def _until_ended(child: int) -> int:
    """Reap children until this one has ended; return its exit code as a shell would."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
