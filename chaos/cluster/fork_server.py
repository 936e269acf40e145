"""Pods and commands, forked from a process that has imported the runtime once.

Each is a normal process with its own pid, session, process group, files, signals and exit code.
Forking saves only what Python does before the first line runs: most of a second.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import chaos
from chaos.cluster.fork_main import HEADER_BYTES, REPORT_BYTES

ROOT: Final = Path(chaos.__file__).parent.parent
RUNTIME: Final = (
    "asyncpg",
    "cortex.cli.main",
    "cortex.cli.run.up",
    "cortex.cli.run.serve",
    "cortex.runtime.pod",
    "httpcore2",
    "trio_asyncio",
)
"""Modules that every pod imports sooner or later."""
START_WITHIN_S: Final = 180.0
CLOSE_WITHIN_S: Final = 10.0
OWN: Final = frozenset({"PYTHONPATH", "PYTHONWARNINGS"})
"""Variables read at Python's start that a fork can still apply."""

File = int | IO[Any] | None


class ServerGone(Exception):
    """The fork server has ended, and with it everything that it forked."""


class Process:
    """A forked process, with the interface of `subprocess.Popen`; may be used from any thread."""

    def __init__(
        self, arguments: Sequence[str], *, pid: int, connection: socket.socket, stdout: int | None
    ) -> None:
        self.args = list(arguments)
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None if stdout is None else os.fdopen(stdout, "rb")
        # A number, not the socket: a socket complains if it is collected before this process.
        self._connection = connection.detach()
        self._lock = threading.Lock()

    def __del__(self) -> None:
        os.close(self._connection)

    def fileno(self) -> int:
        """A descriptor that is readable once the process has ended."""
        return self._connection

    def poll(self) -> int | None:
        """Its return code, negative for a signal, or None while it runs."""
        with self._lock:
            if self.returncode is None and _is_readable(self._connection, within_s=0):
                try:
                    self.returncode = _report(self._connection)
                except ServerGone:  # the server's children ended with it
                    self.returncode = -signal.SIGKILL
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None:
            _is_readable(self._connection, within_s=timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server; the first request starts it, and it ends with its owner.

    `modules` are imported beforehand, in addition to the runtime. For `module:function` the
    function is called, too, to fill its cache. Everything that it forked is killed when it is
    closed, and when its owner dies in any way. May be used from any thread.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = (*RUNTIME, *modules)
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        module: str = "cortex",
    ) -> Process:
        """Start `python -m module` with these arguments, in its own session.

        Files are as for `subprocess.Popen`, but only `stdout` may be `subprocess.PIPE`; None is the
        null device. Raises `ValueError` for an environment that needs another interpreter: see
        `fits`.
        """
        if not fits(env):
            raise ValueError("this environment needs an interpreter of its own")
        what = {"module": module, "arguments": list(arguments), "env": dict(env)}
        # ASCII, so that text that is not UTF-8 survives, too.
        body = json.dumps(what | {"cwd": os.fspath(cwd)}).encode("ascii")
        reading, writing = os.pipe() if stdout == subprocess.PIPE else (None, None)
        files = [stdin, stdout if writing is None else writing, stderr]
        ours, its = socket.socketpair()
        try:
            with its, Path(os.devnull).open("r+b", buffering=0) as nothing:
                numbers = [_number(nothing if file is None else file) for file in files]
                with self._lock:
                    socket.send_fds(self._running(), [b"\0"], [its.fileno(), *numbers])
            ours.sendall(len(body).to_bytes(HEADER_BYTES, "big") + body)
            pid = _report(ours.fileno())
        except BaseException:
            ours.close()
            if reading is not None:
                os.close(reading)
            raise
        finally:
            if writing is not None:
                os.close(writing)
        return Process(arguments, pid=pid, connection=ours, stdout=reading)

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str,
        stdin: bytes = b"",
        timeout: float,
        module: str = "cortex",
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command to its end with this input; kill it after `timeout` seconds."""
        with (
            tempfile.TemporaryFile() as read,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            read.write(stdin)
            read.seek(0)
            process = self.start(
                arguments, env=env, cwd=cwd, stdin=read, stdout=out, stderr=err, module=module
            )
            try:
                code = process.wait(timeout)
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(process.args, code, out.read(), err.read())

    def close(self) -> None:
        """End the server and everything that it forked."""
        with self._lock:
            if self._server is None or self._control is None or self._owner != os.getpid():
                return
            self._control.close()
            self._server.wait(CLOSE_WITHIN_S)
            self._server = self._control = None

    def _running(self) -> socket.socket:
        """The connection to the server; starts one if this process has none."""
        if self._control is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._server, self._control = _start(self._modules)
            atexit.register(self.close)
        return self._control


def fits(env: Mapping[str, str]) -> bool:
    """Return whether a fork can do what Python would do with this environment.

    It cannot where Python decides only at its start, such as another encoding or mode.
    """
    for name, value in env.items():
        if name.startswith("PYTHON") and name not in OWN:
            return False
        is_locale = name == "LANG" or name.startswith("LC_")
        if is_locale and value and not value.upper().replace("-", "").endswith("UTF8"):
            return False
    return True


def _trust() -> dict[str, str]:
    """Where OpenSSL looks for certificates: what is loaded from there serves the children, too."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _start(modules: Sequence[str]) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    ours, its = socket.socketpair()
    with its:
        server = subprocess.Popen(
            [sys.executable, "-m", "chaos.cluster.fork_main", str(its.fileno()), *modules],
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **_trust()},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    if not _is_readable(ours, within_s=START_WITHIN_S) or not ours.recv(1):
        server.kill()
        server.wait()
        ours.close()
        raise RuntimeError("the fork server did not start: see what it wrote to stderr")
    return server, ours


def _report(connection: int) -> int:
    report = b""
    while len(report) < REPORT_BYTES:
        try:
            piece = os.read(connection, REPORT_BYTES - len(report))
        except ConnectionResetError:  # killed with bytes unread
            piece = b""
        if not piece:
            raise ServerGone
        report += piece
    return int.from_bytes(report, "big", signed=True)


def _number(file: int | IO[Any]) -> int:
    return file if isinstance(file, int) else file.fileno()


def _is_readable(file: int | socket.socket, *, within_s: float | None) -> bool:
    waits = select.poll()
    waits.register(file, select.POLLIN | select.POLLHUP)
    return bool(waits.poll(None if within_s is None else max(0.0, within_s) * 1000))
