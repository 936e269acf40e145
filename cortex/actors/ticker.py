"""The pause of a loop that runs at intervals, or sooner when somebody hints that it should.

Owns: one pending wake-up. A hint while the loop is at work is kept for its next pause, and any
number of hints are one.

On failure and on stop: a cancelled pause keeps the pending wake-up, so a restarted loop finds it.

A loop is written so, and a test drives it by hand with `wake()`::

    while True:
        await self.sweep()
        await self.pacer.wait(30.0)
"""

import random

import trio


class Pacer:
    """Pauses of one loop; `wake` may be called from anywhere in the trio thread."""

    def __init__(self, *, rng: random.Random, jitter: float = 0.1) -> None:
        """`jitter` is the share of each pause, 0 to 1, that chance may take off."""
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"jitter must be between 0 and 1, not {jitter}")
        self._rng = rng
        self._jitter = jitter
        self._wakeup = trio.Event()

    def wake(self) -> None:
        """End the present pause at once, or the next one if the loop is at work."""
        self._wakeup.set()

    async def wait(self, timeout_s: float) -> bool:
        """Pause for at most `timeout_s` seconds; tell whether a wake-up ended it.

        The pause lasts between `timeout_s * (1 - jitter)` and `timeout_s`; `math.inf` waits for a
        wake-up only. Always a Trio checkpoint. After `trio.Cancelled` a pending wake-up is kept.
        """
        pause_s = timeout_s * (1.0 - self._jitter * self._rng.random())
        with trio.move_on_after(pause_s):
            await self._wakeup.wait()
        woken = self._wakeup.is_set()
        if woken:
            self._wakeup = trio.Event()
        return woken
