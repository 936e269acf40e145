"""A pod in a child of this process, for commands that follow or restart it in their terminal.

The child is in a session of its own: signals of the terminal reach this process only, which ends
the pod. When this process is gone, the lifeline ends it. A pod of development hands its jobs back
at once, so that they go on elsewhere, or in the next one, and no attempt is counted.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs

from cortex.cli.apps import load_apps
from cortex.cli.failures import INTERNAL, failure_of, report
from cortex.cli.options import Options
from cortex.cli.run.lifeline import Lifeline
from cortex.cli.run.sources import loaded_sources
from cortex.cli.target import settings_from
from cortex.config import Settings
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
    UsageError,
)

END: Final[Mapping[str, float]] = {
    "pre_stop_s": 0.0,
    "abort_s": 3.0,
    "closed_s": 13.0,
    "kill_s": 23.0,
}
"""Settings of its end: a person waits for it."""
SETTLE_S: Final = 0.0
"""With the embedded database, jobs of a killed command go on at once in the next one."""
DEATHS_MAX: Final = 1000
"""Such pods are killed on purpose: that makes no job a poison job."""
GONE_S: Final = 20.0
"""It is killed then: its own deadlines are earlier."""
LOADED: Final = "loaded"
FAILED: Final = "failed"
BY_SIGNAL: Final = 128


def settings_beside(options: Options, **flags: Any) -> Settings:
    """Return the settings of a pod beside a command, for a person who waits and may kill it."""
    settings = settings_from(options, **flags, **END)
    if settings.dsn is not None:  # other pods rely on how it judges deaths
        return settings
    return attrs.evolve(settings, settle_s=SETTLE_S, deaths_max=DEATHS_MAX)


@attrs.define(kw_only=True)
class ForkedPod:
    """The child as its parent sees it; its pid cannot be reused while the parent holds it."""

    pid: int
    _socket: socket.socket
    name: str = "of this terminal"
    http: str | None = None
    drains_until: float | None = None
    """When its jobs are to be handed back, by `time.monotonic`; None: it does not drain."""
    _unread: bytes = b""

    def fileno(self) -> int:
        """Readable when it has something to report, or has ended."""
        return self._socket.fileno()

    def let_run(self, only: UUID | None = None) -> None:
        """Start it; `only`: it runs this job and no other."""
        with suppress(OSError):  # it has ended: `heard` reports it
            self._socket.sendall(f"{'' if only is None else only.hex}\n".encode())

    def heard(self) -> dict[str, Any] | None:
        """Wait for its next report; None: it has ended.

        First come the files that it has `LOADED`, with the error if that `FAILED`, then that it is
        ready, or again an error.
        """
        while not self.has_more:
            try:
                piece = self._socket.recv(65_536)
            except ConnectionResetError:  # it has ended without reading what was sent
                return None
            if not piece:
                return None
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if "pod" in found:
            self.name, self.http = found["pod"], found["http"]
        return found

    @property
    def has_more(self) -> bool:
        """Whether a report is here already, which does not make it readable."""
        return b"\n" in self._unread

    def until_ready(self) -> None:
        """Wait until it takes jobs. Raises the error with which it ended before that."""
        while True:
            found = self.heard()
            if found is None:
                raise UnavailableError("the pod has ended before it was ready")
            if FAILED in found:
                raise error_of(found)
            if "pod" in found:
                return

    def ended(self) -> bool:
        """Return whether it has ended; then it is closed."""
        if self.exit_code is None:
            return False
        self.close()
        return True

    @property
    def exit_code(self) -> int | None:
        """Exit code as a shell reports it; None while it runs."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else BY_SIGNAL + found.si_status

    def drain(self, within_s: float) -> None:
        """Request its end once its jobs have ended; it takes no more."""
        self.drains_until = time.monotonic() + within_s
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def hand_back(self) -> None:
        """Request its end at once: both signals, since two of one kind may count as one."""
        self.drains_until = None
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> int:
        """Wait for its end, at most `GONE_S`; return its exit code."""
        waiting = signal.signal(signal.SIGALRM, self._kill)
        signal.setitimer(signal.ITIMER_REAL, GONE_S)
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, waiting)
        code = self.exit_code
        os.waitpid(self.pid, 0)
        self._socket.close()
        return 1 if code is None else code

    def _kill(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork_pod(
    settings: Settings,
    apps: tuple[str, ...],
    *,
    outputs: tuple[int, int],
    surroundings: Callable[[], AbstractContextManager[None]],
    listening: socket.socket | None = None,
) -> ForkedPod:
    """Fork a pod with these applications; call it without threads.

    It loads them at once, and runs after `let_run`, within `surroundings`. `outputs`: its stdout
    and stderr; `listening` serves its API.
    """
    theirs, own = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        own.close()
        return ForkedPod(pid=pid, socket=theirs)
    code = 1
    try:
        theirs.close()
        os.setsid()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, *outputs)):
            os.dup2(source, number)
        with surroundings():
            code = _run(settings, apps, own, listening)
    except BaseException as error:  # noqa: BLE001 -- the outermost place of the child
        code = report(error, ())
    finally:
        _end(code)


def _run(
    settings: Settings, apps: tuple[str, ...], own: socket.socket, listening: socket.socket | None
) -> int:
    lifeline = Lifeline(own)
    try:
        modules = load_apps(apps)
    except CortexError as error:
        return _failed(lifeline, error, {LOADED: loaded_sources()})
    lifeline.report({LOADED: loaded_sources()})
    try:
        asked = own.makefile("r").readline()
        if not asked:  # the parent is gone
            return 1
        from cortex.cli.run.up import run_pod_beside

        only = UUID(asked.strip()) if asked.strip() else None
        return run_pod_beside(settings, modules, apps, lifeline, only=only, listening=listening)
    except Exception as error:
        if failure_of(error).code == INTERNAL:
            raise
        return _failed(lifeline, error, {})


def _failed(lifeline: Lifeline, error: Exception, more: dict[str, Any]) -> int:
    failure = failure_of(error)
    details = {"hint": failure.hint, "exit_code": failure.exit_code}
    lifeline.report({**more, FAILED: failure.message, **details})
    return failure.exit_code


def error_of(report: Mapping[str, Any]) -> CortexError:
    """Return the error that a pod has reported, of a kind with its exit code."""
    kinds = (UsageError, ForbiddenError, NotFoundError, ConflictError)
    kind = {each.exit_code: each for each in kinds}.get(report["exit_code"], UnavailableError)
    return kind(str(report[FAILED]), hint=report["hint"])


def _end(code: int) -> NoReturn:
    """End the child, without what its parent would do at its own end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
