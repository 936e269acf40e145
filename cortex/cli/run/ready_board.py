"""Which workers of a pod take jobs, in memory that they share with their supervisor.

Each writes how long its word counts, so one that hangs or is stopped becomes not ready by itself. A
probe reads this without waiting for any of them.
"""

import mmap
import time
from collections.abc import Callable
from typing import Final

import trio

from cortex.domain.drain import ReadyChecks

WRITE_EVERY_S: Final = 0.25
COUNTS_FOR_S: Final = 1.5
"""Several times as long: a busy machine may run a worker late."""
ENTRY_BYTES: Final = 8


class ReadyBoard:
    """One entry a worker, by its number from 1: the instant until which it is ready.

    Made before the workers are forked. An entry is one aligned word, so no reader sees half of it.
    """

    def __init__(self, *, workers: int) -> None:
        self._ready_until = memoryview(mmap.mmap(-1, workers * ENTRY_BYTES)).cast("d")

    async def keep(self, worker: int, checks: Callable[[], ReadyChecks]) -> None:
        """Keep the entry of a worker up to date until cancelled."""
        while True:
            self.write(worker, checks())
            await trio.sleep(WRITE_EVERY_S)

    def write(self, worker: int, checks: ReadyChecks) -> None:
        until = time.monotonic() + COUNTS_FOR_S if checks.are_passed else 0.0
        self._ready_until[worker - 1] = until

    def clear(self, worker: int) -> None:
        """Let a worker that has ended be not ready at once."""
        self._ready_until[worker - 1] = 0.0

    def are_all_ready(self) -> bool:
        return min(self._ready_until) > time.monotonic()
