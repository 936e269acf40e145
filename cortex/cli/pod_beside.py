"""The pod of `cortex up --tui`: a child in a session of its own, whose logs go to a file.

A fork, before anything runs: the child is this very program with what it was told, and it needs no
second look at arguments that may hold a password. In its own session no signal of the terminal
reaches it; it is told to end by this process, or by its end: see `lifeline`.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final, Self

import attrs
import platformdirs

from cortex.cli.lifeline import Lifeline
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError

LOGS_MAX: Final = 20
"""Files that are kept; more when more pods than that run."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@attrs.define(kw_only=True)
class PodBeside:
    """The child, as its parent has it. It stays a zombie until the parent ends: its id is its."""

    pid: int
    log: Path
    _socket: socket.socket
    name: str = "of this terminal"
    """As in the record, once it is ready."""
    http: str | None = None
    ready_s: float = 0.0
    is_draining: bool = False

    def until_ready(self) -> bool:
        """Wait until it takes jobs; False: it has ended, or is about to."""
        with self._socket.makefile("r", encoding="utf-8") as lines:
            line = lines.readline()
        if not line:
            return False
        told = json.loads(line)
        self.name, self.http, self.ready_s = told["pod"], told["http"], told["ready_s"]
        return True

    @property
    def exit_code(self) -> int | None:
        """As a shell would say; None: it runs."""
        return self._look(os.WNOHANG)

    def ended(self) -> str | None:
        """Say how it ended, in a few words; None: it runs."""
        code = self.exit_code
        if code is None:
            return None
        if code > 128:  # noqa: PLR2004 -- a shell's word for a signal
            return f"was ended by {signal.Signals(code - 128).name}"
        return f"has ended with exit code {code}" if code else "has ended"

    def drain(self) -> None:
        """Let it end: its jobs go on elsewhere after their next step."""
        if not self.is_draining:
            self._end()

    def signalled(self, number: int, _: FrameType | None = None) -> None:
        """Take a signal of this process: the first drains, another one hands back at once.

        A terminal that goes is no reason to hurry.
        """
        if number != signal.SIGHUP or not self.is_draining:
            self._end()

    def wait(self) -> int:
        """Wait for its end; return the exit code. Bounded by the pod's own deadline, once told."""
        code = self._look(0)
        if code is None:
            raise ChildProcessError(f"nobody knows what became of process {self.pid}")
        return code

    @contextmanager
    def hearing_signals(self) -> Iterator[Self]:
        """Pass the signals of this process on while the block lasts."""
        before = {number: signal.signal(number, self.signalled) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def last_words(self, lines_max: int) -> str:
        """Return the end of its log."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-lines_max:])

    def _end(self) -> None:
        self.is_draining = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def _look(self, how: int) -> int | None:
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else 128 + seen.si_status


def fork_pod() -> PodBeside | Lifeline:
    """Split in two: the parent gets the pod, and the pod its end of the lifeline.

    Raises `UsageError` when there is no place for logs.
    """
    log = _new_log(platformdirs.user_log_path("cortex", appauthor=False))
    theirs, own = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        own.close()
        return PodBeside(pid=pid, log=log, socket=theirs)
    theirs.close()
    os.setsid()
    _take(os.devnull, os.O_RDONLY, 0)
    for number in (1, 2):
        _take(str(log), os.O_WRONLY | os.O_APPEND, number)
    return Lifeline(own)


def _take(path: str, how: int, number: int) -> None:
    """Open a file in the place of a standard stream."""
    opened = os.open(path, how)
    os.dup2(opened, number)
    os.close(opened)


def _new_log(folder: Path) -> Path:
    """Make an empty log that only its user may read, and leave the newest ones beside it."""
    now = datetime.fromtimestamp(system_chance().unix_ms() / 1000, UTC)
    log = folder / f"pod-{now:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for old in sorted(folder.glob("pod-*.log"))[: 1 - LOGS_MAX]:
            if not _runs(old):
                old.unlink(missing_ok=True)
        os.close(os.open(log, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise UsageError(
            f"cannot write the pod's log {log}: {error.strerror}",
            hint="make that folder one that this user may write to, or set XDG_STATE_HOME",
        ) from error
    return log


def _runs(log: Path) -> bool:
    """Whether the process in the name of a log is there: it may still write to it."""
    number = log.stem.rpartition("-")[2]
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
