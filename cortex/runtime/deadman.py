"""Ends the process by force when its shutdown does not: no code can hold a pod.

A thread, not a trio task, since it guards against a blocked event loop. One thread serves all
requests: the earliest one strikes.
"""

import _thread
import os
import select
import threading
import time
from typing import Final

import attrs

EXIT_CODE: Final = 1
GOODBYE_S: Final = 2.0
"""How long the process may take to end by itself once its pod is gone."""
CHECK_S: Final = 0.1
"""How often it checks for an earlier request; no lock announces one, see `arm`."""


@attrs.frozen(order=True)
class _Strike:
    """When to strike, by the monotonic clock, and how."""

    at: float
    exit_code: int = attrs.field(order=False)
    message: str = attrs.field(order=False)


_strikes: list[_Strike] = []


def arm(after_s: float, *, exit_code: int = EXIT_CODE, message: str | None = None) -> None:
    """End the process hard after `after_s` seconds, if it still runs then.

    Safe at any moment, in a signal handler too: other pods take over what was not committed.
    `message`: the line that it prints then, instead of the default about a slow shutdown.
    """
    late = f"shutdown took longer than {after_s:g} s: exiting hard"
    is_first = not _strikes
    _strikes.append(_Strike(time.monotonic() + after_s, exit_code, message or late))
    if is_first:
        # Not threading.Thread: the interrupted code may hold its locks.
        _thread.start_new_thread(_watch, ())


def _watch() -> None:
    never = threading.Event()
    while True:
        strike = min(tuple(_strikes))
        left_s = strike.at - time.monotonic()
        if left_s <= 0:
            break
        never.wait(min(left_s, CHECK_S))
    try:
        # The reader may be gone, or read no more: that must not keep the process alive.
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"cortex: {strike.message}\n".encode())
    finally:
        os._exit(strike.exit_code)
