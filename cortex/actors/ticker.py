"""The pause of a loop that runs at intervals, or sooner on a hint."""

import random

import trio


class Pacer:
    """Pauses of one loop; `wake` may be called from anywhere in the trio thread."""

    def __init__(self, *, rng: random.Random, jitter: float = 0.1) -> None:
        """`jitter` is the share of each pause, 0 to 1, that a random draw may take off."""
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"jitter must be between 0 and 1, not {jitter}")
        self._rng = rng
        self._jitter = jitter
        self._wakeup = trio.Event()

    def wake(self) -> None:
        """End the present pause at once, or the next one if the loop is at work."""
        self._wakeup.set()

    async def wait(self, timeout_s: float) -> bool:
        """Pause for at most `timeout_s` seconds; return whether a wake-up ended the pause.

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
