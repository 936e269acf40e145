"""Ends the process when its shutdown does not: code that ignores cancellation cannot hold a pod.

A thread, not a trio task: what it guards against is a loop that does not turn any more. One for all
that is asked of it: what comes first strikes.
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
"""What the process gets to end by itself once nothing of its pod is left."""
LOOK_S: Final = 0.1
"""So often it looks whether it was asked for something earlier; no lock tells it, see `arm`."""


@attrs.frozen(order=True)
class _Strike:
    """When, by the monotonic clock, and how."""

    at: float
    exit_code: int = attrs.field(order=False)
    told: str = attrs.field(order=False)


_strikes: list[_Strike] = []


def arm(after_s: float, *, exit_code: int = EXIT_CODE, told: str | None = None) -> None:
    """End the process hard after so many seconds, if it still runs then.

    Safe at any moment, in a signal handler too: what was not committed is taken over by another
    pod. `told`: what it says then, one line, in place of that it took too long.
    """
    late = f"shutdown took longer than {after_s:g} s: exiting hard"
    is_first = not _strikes
    _strikes.append(_Strike(time.monotonic() + after_s, exit_code, told or late))
    if is_first:
        # Not threading.Thread: its locks may be held by what the signal has interrupted.
        _thread.start_new_thread(_watch, ())


def _watch() -> None:
    never = threading.Event()
    while True:
        strike = min(tuple(_strikes))
        left_s = strike.at - time.monotonic()
        if left_s <= 0:
            break
        never.wait(min(left_s, LOOK_S))
    try:
        # Whoever reads may be gone, or read no more: that is no reason to live on.
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"cortex: {strike.told}\n".encode())
    finally:
        os._exit(strike.exit_code)
