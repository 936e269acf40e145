"""Ends the process when its shutdown does not: code that ignores cancellation cannot hold a pod.

A thread, not a trio task: what it guards against is a loop that does not turn any more.
"""

import _thread
import os
import select
import threading
from typing import Final

EXIT_CODE: Final = 1
GOODBYE_S: Final = 2.0
"""What the process gets to end by itself once nothing of its pod is left."""


def arm(after_s: float, *, exit_code: int = EXIT_CODE, told: str | None = None) -> None:
    """End the process hard after so many seconds, if it still runs then.

    Safe at any moment, in a signal handler too: what was not committed is taken over by another
    pod. `told`: what it says then, one line, in place of that it took too long.
    """

    def strike() -> None:
        threading.Event().wait(after_s)
        late = f"shutdown took longer than {after_s:g} s: exiting hard"
        try:
            # Whoever reads may be gone, or read no more: that is no reason to live on.
            if select.select([], [2], [], 0)[1]:
                os.write(2, f"cortex: {told or late}\n".encode())
        finally:
            os._exit(exit_code)

    # Not threading.Thread: its locks may be held by what the signal has interrupted.
    _thread.start_new_thread(strike, ())
