"""The first process of a container: it starts the command as its child and buries the dead.

The kernel gives process 1 every orphan of its namespace, of which a tool may leave many, and drops
signals for which it has no handler. So process 1 does nothing but pass signals on and wait; the
command is an ordinary process. An init such as tini takes this place if the image has one.
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
        # From a group in the background, this stops whoever does not ignore the signal.
        handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with suppress(OSError):  # a terminal that is not ours to control
            os.tcsetpgrp(STDIN, os.getpid())
        signal.signal(signal.SIGTTOU, handler)


def _until_ended(child: int) -> int:
    """Reap whatever ends until this child has; return its exit code as a shell would say it."""
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
