"""Monotonic time for waiting; people see the database's time instead: see `session`."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, and waiting."""

    def now(self) -> float: ...

    def came(self, waited_s: float) -> float:
        """Return when an event arrived that waited for `waited_s` before it was handled."""
        ...

    async def wait(self, event: asyncio.Event, *, until: float) -> None:
        """Return when the event is set or the deadline has passed."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def came(self, waited_s: float) -> float:
        return self.now() - waited_s

    async def wait(self, event: asyncio.Event, *, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self.now())):
                await event.wait()
        except TimeoutError:
            return
