"""Pods and commands forked from a process that has imported the runtime once.

Each is a process like any other: a pid, a session and process group of its own, its own files,
signals and exit code. Only what Python does before the first line of it is saved: most of a second.
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
"""What every pod imports, soon or late."""
START_WITHIN_S: Final = 180.0
CLOSE_WITHIN_S: Final = 10.0
OWN: Final = frozenset({"PYTHONPATH", "PYTHONWARNINGS"})
"""Of what Python reads when it starts, what a fork can still follow."""

File = int | IO[Any] | None


class ServerGone(Exception):
    """The fork server has ended, and with it all that it forked."""


class Process:
    """A forked process, as `subprocess.Popen` would show it; may be used from any thread."""

    def __init__(
        self, arguments: Sequence[str], *, pid: int, connection: socket.socket, stdout: int | None
    ) -> None:
        self.args = list(arguments)
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None if stdout is None else os.fdopen(stdout, "rb")
        # A number, not the socket: that complains if it is found in a cycle before this process is.
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
                except ServerGone:  # and it took its children along
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
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The server, started by the first process that is asked of it; ends with its owner.

    `modules` are imported beforehand, beside the runtime; of `module:function` the function is
    called, too, for what it keeps. What it forked is killed when it is
    closed, and when its owner dies in whatever way. May be used from any thread.
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
        """Start `python -m module` with these arguments, in a session of its own.

        Files are as for `subprocess.Popen`, of which only `stdout` may be `subprocess.PIPE`; None
        is nothing to read from or nowhere to write to. Raises `ValueError` for an environment that
        asks for another interpreter than the server's: see `fits`.
        """
        if not fits(env):
            raise ValueError("this environment asks for an interpreter of its own")
        what = {"module": module, "arguments": list(arguments), "env": dict(env)}
        # ASCII, so that words that are no UTF-8 come through, too.
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
        """Run a command to its end with what it is to read; kill it after `timeout` seconds."""
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
        """End the server and all that it forked."""
        with self._lock:
            if self._server is None or self._control is None or self._owner != os.getpid():
                return
            self._control.close()
            self._server.wait(CLOSE_WITHIN_S)
            self._server = self._control = None

    def _running(self) -> socket.socket:
        """The way to the server, which is started if there is none, or none of this process."""
        if self._control is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._server, self._control = _start(self._modules)
            atexit.register(self.close)
        return self._control


def fits(env: Mapping[str, str]) -> bool:
    """Tell whether a fork can do what Python would do under this environment.

    It cannot where Python decides once, when it starts: another encoding, another mode.
    """
    for name, value in env.items():
        if name.startswith("PYTHON") and name not in OWN:
            return False
        is_locale = name == "LANG" or name.startswith("LC_")
        if is_locale and value and not value.upper().replace("-", "").endswith("UTF8"):
            return False
    return True


def _trust() -> dict[str, str]:
    """Where OpenSSL looks for certificates: what was read from there serves the children, too."""
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
        except ConnectionResetError:  # killed with bytes of ours unread
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
