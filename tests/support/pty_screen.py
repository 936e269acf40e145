"""A terminal with a screen: what a full-screen program shows, and every byte that it wrote."""

import fcntl
import math
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil
import pyte
import pytest

from chaos.cluster.fork_server import Process, fits
from tests.support.eventually import WITHIN_S
from tests.support.pods import FORKS
from tests.support.terminal import launch

READ_S = 0.05
CHOKING_KEYS = 100
"""More than a program keeps in a queue for a terminal that is slow."""
CURSOR, ALTERNATE = 25, 1049
BEGINS = b"\x1b[?1049h"
"""What a program writes first."""
REPORTS = (1000, 1003, 1004, 1006, 1015, 1016, 2004, 2048)
"""Modes of a terminal that make it send input that was not typed: mouse, focus, paste, size."""
MODULE = [sys.executable, "-m"]
CORTEX = [*MODULE, "cortex"]
AGAIN_S = 2.0
"""Longer than the silence that the terminal UI wants before some keys."""


class PtyScreen:
    """Runs a program on a pseudo-terminal of a size; use it as a context manager."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        size: tuple[int, int] = (120, 40),
        is_controlling: bool = False,
        ignores_hangup: bool = False,
        is_forked: bool = True,
    ) -> None:
        """`size`: columns and lines. `is_controlling`: signals of the terminal reach the program.

        `ignores_hangup`: it was begun as by `nohup`. `is_forked`: that Python starts and imports
        is no part of the test.
        """
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        _set_size(slave, size)
        self.modes = termios.tcgetattr(slave)
        if is_controlling or ignores_hangup:
            named = command[2:] if command[:2] == MODULE else [launch.PROGRAM, *command]
            command = [*MODULE, launch.__name__, *named]
            wanted = {launch.CONTROLLING: is_controlling, launch.NOHUP: ignores_hangup}
            env = {**env, **{name: "1" for name, is_wanted in wanted.items() if is_wanted}}
        start = _forked if is_forked and fits(env) and command[:2] == MODULE else _from_nothing
        self._process = start(command, folder=folder, env=env, slave=slave)
        self._slave = slave
        self._is_there = True
        self._rows = [""] * size[1]
        self._written = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.vanish()

    def vanish(self) -> None:
        """Be gone, as a window that was closed."""
        if self._is_there:
            self._is_there = False
            os.close(self._slave)
            os.close(self._master)

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        """The text of the screen, line by line."""
        # `display` of pyte lays out each line again, for as long as all else that a test does.
        for y in self._screen.dirty & set(range(len(self._rows))):  # the cursor may be below
            row = self._screen.buffer[y]
            self._rows[y] = "".join([row[x].data for x in range(self._screen.columns)]).rstrip()
        self._screen.dirty.clear()
        return list(self._rows)

    @property
    def text(self) -> str:
        """The text of the screen."""
        return "\n".join(self.lines)

    @property
    def written(self) -> bytes:
        """Everything that came."""
        return bytes(self._written)

    def until(self, probe: Callable[[str], object], *, what: str) -> str:
        """Read until the screen fulfils a condition; fails the test naming `what`."""
        give_up_at = time.monotonic() + WITHIN_S
        while not probe(self.text):
            if time.monotonic() > give_up_at:
                pytest.fail(f"never came: {what}; the screen shows\n{self.text}")
            self._read()
        return self.text

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def press_until(self, key: str, probe: Callable[[str], object], *, what: str) -> str:
        """Press a key, and again while nothing comes of it: it may have come too early."""
        pressed_at = -math.inf

        def pressed(text: str) -> bool:
            nonlocal pressed_at
            if probe(text):
                return True
            if time.monotonic() > pressed_at + AGAIN_S:
                pressed_at = time.monotonic()
                self.type(key)
            return False

        return self.until(pressed, what=what)

    def send(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def resize(self, columns: int, lines: int) -> None:
        """Resize, and notify the program."""
        self._screen.resize(lines, columns)
        self._rows = [""] * lines
        self._screen.dirty = set(range(lines))
        _set_size(self._slave, (columns, lines))
        self.send(signal.SIGWINCH)

    def until_stopped(self) -> None:
        """Read until the program is at rest."""
        give_up_at = time.monotonic() + WITHIN_S
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            if time.monotonic() > give_up_at:
                pytest.fail(f"it does not stop; the screen shows\n{self.text}")
            self._read()
        self._read_all()

    def until_resumed(self, probe: Callable[[str], object], *, what: str) -> str:
        """Continue it after a stop, and read until it has restarted and fulfils a condition.

        After a SIGSTOP it may paint before it restarts.
        """
        begun = self._written.count(BEGINS)
        self.send(signal.SIGCONT)
        return self.until(
            lambda text: self._written.count(BEGINS) > begun and probe(text), what=what
        )

    def forget(self) -> None:
        """Show nothing, as a shell that was in between."""
        self._screen.erase_in_display(2)

    @property
    def is_as_found(self) -> bool:
        """All modes of the terminal are as they were before the program began."""
        on = {mode >> 5 for mode in self._screen.mode}
        is_left = CURSOR in on and not on & {ALTERNATE, *REPORTS}
        return is_left and self.modes_now == self.modes

    def choke(self, keys: str) -> None:
        """Read nothing, and press keys until the program's output is stuck, and some more."""
        give_up_at = time.monotonic() + WITHIN_S
        while select.select([], [self._slave], [], 0)[1]:
            if time.monotonic() > give_up_at:
                pytest.fail("the terminal still takes what the program writes")
            self.type(keys)
            time.sleep(READ_S)
        for _ in range(CHOKING_KEYS):
            self.type(keys)

    def end(self, *, is_reading: bool = True) -> int:
        """Wait until the program has ended, also without a terminal; return its exit code."""
        if not is_reading:
            return self._process.wait(WITHIN_S)
        give_up_at = time.monotonic() + WITHIN_S
        while self._process.poll() is None:
            if time.monotonic() > give_up_at:
                pytest.fail(f"it does not end; the screen shows\n{self.text}")
            self._read()
        self._read_all()
        return self._process.wait()

    @property
    def modes_now(self) -> list[object]:
        """The terminal's settings, as `modes` was before the program began."""
        return termios.tcgetattr(self._slave)

    def _read_all(self) -> None:
        """Read what was written before: a read of a terminal returns a part of it."""
        self._read()
        while self._is_there and select.select([self._master], [], [], 0)[0]:
            self._read()

    def _read(self) -> None:
        if not self._is_there:
            time.sleep(READ_S)
            return
        ready, _, _ = select.select([self._master], [], [], READ_S)
        if ready:
            piece = os.read(self._master, 65_536)
            self._written += piece
            self._stream.feed(piece)


def _set_size(terminal: int, size: tuple[int, int]) -> None:
    columns, lines = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _forked(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str], slave: int
) -> "Process | subprocess.Popen[bytes]":
    module, *words = command[len(MODULE) :]
    return FORKS.start(
        words, env=env, cwd=folder, stdin=slave, stdout=slave, stderr=slave, module=module
    )


def _from_nothing(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str], slave: int
) -> "Process | subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=dict(env),
        start_new_session=True,
    )
