"""Ends the process when its shutdown does not: code that ignores cancellation cannot hold a pod.

A thread, not a trio task: what it guards against is a loop that does not turn any more.
"""

import os
import sys
import threading
from typing import Final

EXIT_CODE: Final = 1


def arm(after_s: float, *, exit_code: int = EXIT_CODE) -> None:
    """End the process hard after so many seconds, if it still runs then.

    Safe at any moment: what was not committed is taken over by another pod.
    """

    def strike() -> None:
        sys.stderr.write(f"cortex: shutdown took longer than {after_s:g} s: exiting hard\n")
        sys.stderr.flush()
        os._exit(exit_code)

    timer = threading.Timer(after_s, strike)
    timer.daemon = True
    timer.start()
