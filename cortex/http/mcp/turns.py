"""Bounds the calls in progress: those of one caller, so that none shuts out the others, and all."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import Final

import trio

from cortex.domain.errors import UnavailableError

PATIENCE_S: Final = 5.0
"""How long a call waits for its turn."""


class Turns:
    """Turns for calls of one kind."""

    def __init__(self, *, each_max: int, all_max: int) -> None:
        """`each_max`: of one caller; `all_max`: of all callers."""
        self._each_max = each_max
        self._all_max = all_max
        self._all = trio.Semaphore(all_max)
        self._of: dict[Hashable, trio.Semaphore] = {}
        self._users: defaultdict[Hashable, int] = defaultdict(int)

    @asynccontextmanager
    async def turn(self, caller: Hashable) -> AsyncGenerator[None, None]:
        """Hold a turn as long as the block. Raises `UnavailableError` if none becomes free."""
        own = self._of.setdefault(caller, trio.Semaphore(self._each_max))
        self._users[caller] += 1
        try:
            async with _held(own, self._each_max), _held(self._all, self._all_max):
                yield
        finally:
            self._users[caller] -= 1
            if not self._users[caller]:
                del self._users[caller], self._of[caller]


@asynccontextmanager
async def _held(turns: trio.Semaphore, count: int) -> AsyncGenerator[None, None]:
    with trio.move_on_after(PATIENCE_S) as patience:
        await turns.acquire()
    if patience.cancelled_caught:
        raise UnavailableError(
            f"{count} such calls are in progress already", hint="try again in a moment"
        )
    try:
        yield
    finally:
        turns.release()
