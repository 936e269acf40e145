"""A terminal with a screen: what a full-screen program shows, and every byte that it wrote."""

import fcntl
import math
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import pyte
import pytest

WITHIN_S = 30.0
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
    ) -> None:
        """`size`: columns and lines."""
        columns, lines = size
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=dict(env),
            start_new_session=True,
        )
        self._slave = slave
        self.written = b""
        """Everything that came."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._slave)
        os.close(self._master)

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

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

    def end(self) -> int:
        """Read until the program has ended; return its exit code."""
        give_up_at = time.monotonic() + WITHIN_S
        while self._process.poll() is None:
            if time.monotonic() > give_up_at:
                pytest.fail(f"it does not end; the screen shows\n{self.text}")
            self._read()
        self._read()
        return self._process.returncode

    @property
    def modes_now(self) -> list[object]:
        """The terminal's settings, as `modes` was before the program began."""
        return termios.tcgetattr(self._slave)

    def _read(self) -> None:
        ready, _, _ = select.select([self._master], [], [], 0.05)
        if ready:
            piece = os.read(self._master, 65_536)
            self.written += piece
            self._stream.feed(piece)
