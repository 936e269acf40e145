"""The pod of `cortex up --tui`: a child in a session of its own that logs to a file.

It is forked before anything runs, so the child has the parsed arguments and does not need to read a
command line that may hold a password. In its own session it gets no signals of the terminal; this
process ends it by a signal, or by its own end: see `lifeline`.
"""

import json
import os
import select
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

from cortex.cli.run.lifeline import Lifeline
from cortex.domain.clock import system_chance
from cortex.domain.errors import UsageError

LOGS_MAX: Final = 20
"""Number of logs kept; more only while more pods run."""
LOOK_MS: Final = 1_000
"""Poll interval for the pod's exit; usually the closed lifeline reports it first."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@attrs.define(kw_only=True)
class PodBeside:
    """The child as seen by its parent; its pid cannot be reused while the parent holds it."""

    pid: int
    log: Path
    _socket: socket.socket
    name: str = "of this terminal"
    """As in the record, once it is ready."""
    http: str | None = None
    ready_s: float = 0.0
    is_draining: bool = False

    def until_ready(self) -> bool:
        """Wait until the pod takes jobs; return False if it ended or is ending."""
        with self._socket.makefile("r", encoding="utf-8") as lines:
            line = lines.readline()
        if not line:
            return False
        text = json.loads(line)
        self.name, self.http, self.ready_s = text["pod"], text["http"], text["ready_s"]
        return True

    @property
    def exit_code(self) -> int | None:
        """Exit code as a shell reports it; None while it runs."""
        return self._look(os.WNOHANG)

    def ended(self) -> str | None:
        """Describe in a few words how it ended; None while it runs."""
        code = self.exit_code
        if code is None:
            return None
        if code > 128:  # noqa: PLR2004 -- a shell's word for a signal
            return f"was ended by {signal.Signals(code - 128).name}"
        return f"has ended with exit code {code}" if code else "has ended"

    def drain(self) -> None:
        """Drain the pod: its jobs continue elsewhere after their next step."""
        if not self.is_draining:
            self._end()

    def signalled(self, number: int, _: FrameType | None = None) -> None:
        """Handle a signal: the first drains the pod, the second hands its jobs back at once.

        A closed terminal never counts as the second.
        """
        if number != signal.SIGHUP or not self.is_draining:
            self._end()

    def wait(self) -> int:
        """Wait for its end; return the exit code. A draining pod has a deadline of its own.

        A terminal that closes meanwhile drains the pod: not every terminal sends a signal.
        """
        poll = select.poll()
        poll.register(sys.stdin, 0)
        poll.register(self._socket, select.POLLIN)
        while not self.is_draining and self.exit_code is None:
            observed = {number for number, _ in poll.poll(LOOK_MS)}
            if sys.stdin.fileno() in observed:
                self.drain()
            elif observed:
                break  # it is about to end
        code = self._look(0)
        if code is None:
            raise ChildProcessError(f"the exit code of process {self.pid} is unknown")
        return code

    @contextmanager
    def in_front(self) -> Iterator[Self]:
        """Forward this process's signals during the block; leave it only after the pod's end."""
        before = {number: signal.signal(number, self.signalled) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._socket.close()
            os.waitpid(self.pid, os.WNOHANG)

    def last_words(self, lines_max: int) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-lines_max:])

    def _end(self) -> None:
        self.is_draining = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def _look(self, how: int) -> int | None:
        observed = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        if observed is None:
            return None
        return observed.si_status if observed.si_code == os.CLD_EXITED else 128 + observed.si_status


def fork_pod() -> PodBeside | Lifeline:
    """Fork: the parent gets the pod, and the pod its end of the lifeline.

    Raises `UsageError` when the log cannot be created.
    """
    log, opened = _new_log(platformdirs.user_log_path("cortex", appauthor=False))
    theirs, own = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        own.close()
        os.close(opened)
        return PodBeside(pid=pid, log=log.rename(_named(log, pid)), socket=theirs)
    theirs.close()
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((nothing, 0), (opened, 1), (opened, 2)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(opened)
    return Lifeline(own)


def _named(log: Path, pid: int) -> Path:
    """Put the pid of the writing process into a log's name."""
    return log.with_stem(f"{log.stem.rpartition('-')[0]}-{pid}")


def _new_log(folder: Path) -> tuple[Path, int]:
    """Create and open an empty log readable only by its user; keep the newest others beside it."""
    now = datetime.fromtimestamp(system_chance().unix_ms() / 1000, UTC)
    log = folder / f"pod-{now:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for old in sorted(folder.glob("pod-*.log"))[: 1 - LOGS_MAX]:
            if not _runs(old):
                old.unlink(missing_ok=True)
        return log, os.open(log, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
    except OSError as error:
        raise UsageError(
            f"cannot write the pod's log {log}: {error.strerror}",
            hint="make that folder writable for this user, or set XDG_STATE_HOME",
        ) from error


def _runs(log: Path) -> bool:
    """Whether the process named in a log is running and may still write to it."""
    number = log.stem.rpartition("-")[2]
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
