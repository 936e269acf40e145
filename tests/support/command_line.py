"""The command line as its users run it: a process of its own, redirected or on a terminal."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Final

import attrs
import pytest

from chaos.cluster.fork_server import Process, fits
from tests.support.eventually import WITHIN_S
from tests.support.in_process import Ended, run_here
from tests.support.pods import FORKS
from tests.support.pty_screen import CORTEX

ROOT = Path(__file__).parent.parent.parent


OWN_PROCESS: Final = frozenset({"bench", "demo", "dev", "preflight", "run", "tui", "up"})
"""Commands that run pods, programs or a screen."""


@attrs.frozen
class Cortex:
    """Runs `cortex` in an empty folder, with an environment isolated from the shell."""

    folder: Path
    dsn: str | None = None

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", env: dict[str, str] | None = None
    ) -> Ended:
        """Run a command to its end, with stdout and stderr redirected.

        In this process, which costs a fifth, unless it imports an app, runs others or needs an
        interpreter of its own.
        """
        environ = self.environ(env)
        if OWN_PROCESS.isdisjoint(arguments[:1]) and "--app" not in arguments and fits(environ):
            return run_here(arguments, env=environ, folder=self.folder, stdin=_bytes(stdin))
        return self.process(*arguments, stdin=stdin, env=env)

    def process(
        self, *arguments: str, stdin: str | bytes = b"", env: dict[str, str] | None = None
    ) -> Ended:
        """Run a command as a process of its own, from any thread, also where trio runs."""
        environ = self.environ(env)
        run = FORKS.run if fits(environ) else run_from_nothing
        done = run(
            arguments,
            stdin=_bytes(stdin),
            cwd=self.folder,
            env=environ,
            timeout=WITHIN_S,
        )
        return Ended(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def bench(self, *arguments: str) -> Ended:
        """Run a measurement of the checkout to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "bench", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=self.folder,
            env=self.environ(None),
            timeout=WITHIN_S,
        )
        return Ended(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a command whose stdout is read line by line."""
        return subprocess.Popen(
            [sys.executable, "-m", "cortex", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environ(env),
        )

    def on_terminal(
        self, *arguments: str, columns: int = 100, env: dict[str, str] | None = None
    ) -> "OnTerminal":
        """Start a command on a terminal of its own."""
        return OnTerminal(
            [sys.executable, "-m", "cortex", *arguments],
            folder=self.folder,
            env=self.environ(env),
            columns=columns,
        )

    def environ(self, more: dict[str, str] | None) -> dict[str, str]:
        mine = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "CORTEX_DATA": str(self.folder / "data"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "PYTHONWARNINGS": "error",
        }
        return mine | ({"CORTEX_DSN": self.dsn} if self.dsn else {}) | (more or {})


def _bytes(given: str | bytes) -> bytes:
    return given.encode() if isinstance(given, str) else given


def run_from_nothing(
    arguments: Sequence[str], *, stdin: bytes, cwd: Path, env: dict[str, str], timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end under an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cortex", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env=env,
        timeout=timeout,
    )


class OnTerminal:
    """A process on a pseudo-terminal; `text` is all that it has written so far."""

    def __init__(
        self, command: list[str], *, folder: Path, env: dict[str, str], columns: int
    ) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process: Process | subprocess.Popen[bytes]
        if command[: len(CORTEX)] == CORTEX and fits(env):
            words = command[len(CORTEX) :]
            self._process = FORKS.start(
                words, env=env, cwd=folder, stdin=slave, stdout=slave, stderr=slave
            )
        else:
            self._process = subprocess.Popen(
                command,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                cwd=folder,
                env=env,
                start_new_session=True,
            )
        os.close(slave)
        self._read = b""

    @property
    def text(self) -> str:
        """Output, with the terminal's line ends."""
        return self._read.decode()

    def read_until(self, probe: Callable[[str], bool], *, what: str) -> str:
        """Read until the text fulfils a condition; fails the test naming `what`."""
        give_up_at = time.monotonic() + WITHIN_S
        while not probe(self.text):
            if time.monotonic() > give_up_at or not self._read_more():
                pytest.fail(f"never came: {what}; the terminal shows {self.text!r}")
        return self.text

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C: the signal goes to the process as the terminal would send it."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        give_up_at = time.monotonic() + WITHIN_S
        while self._read_more():
            if time.monotonic() > give_up_at:
                self._process.kill()
                pytest.fail(f"it does not end; the terminal shows {self.text!r}")
        os.close(self._master)
        return self._process.wait(WITHIN_S)

    def _read_more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.05)
        if not ready:
            return True
        try:
            piece = os.read(self._master, 65_536)
        except OSError:  # what Linux says when the other side has closed
            return False
        self._read += piece
        return bool(piece)
