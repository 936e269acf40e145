"""Quits on a signal: orderly, or hard when an orderly end does not come about.

The handlers belong to the process, not the event loop: the loop may be blocked on a terminal that
accepts no output, such as one behind a hanging connection.
"""

import _thread
import asyncio
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OF_THE_SCREEN: Final = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
"""Signals that Textual keeps handling after its end: it would start the screen again."""
LEAVE_S: Final = 3.0
"""For an orderly end, which takes a tenth of that."""


@contextmanager
def ending_by_signal(
    leave: Callable[[int], object], *, heard: Callable[[int], object] | None
) -> Iterator[None]:
    """On each signal call `heard` at once, and `leave` in the event loop, with the exit code.

    Use it in the event loop of the main thread; on exit it restores the former handlers.
    """
    loop = asyncio.get_running_loop()
    modes = _modes()
    is_left = threading.Event()

    def came(number: int, _: FrameType | None) -> None:
        # Not threading.Thread: the interrupted code may hold its locks.
        _thread.start_new_thread(_leave_at_last, (is_left, 128 + number, modes))
        loop.call_soon_threadsafe(leave, 128 + number)
        if heard is not None:
            heard(number)

    before = {number: signal.getsignal(number) for number in OF_THE_SCREEN}
    before |= {number: signal.signal(number, came) for number in SIGNALS}
    try:
        yield
    finally:
        is_left.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_at_last(is_left: threading.Event, exit_code: int, modes: list[Any] | None) -> None:
    if is_left.wait(LEAVE_S):
        return
    if modes is not None and sys.__stdin__ is not None:
        with suppress(termios.error):
            termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, modes)
    os._exit(exit_code)


def _modes() -> list[Any] | None:
    if sys.__stdin__ is None or not sys.__stdin__.isatty():
        return None
    return termios.tcgetattr(sys.__stdin__.fileno())
