"""Time as this process waits for it; what people read is the database's time: see `session`."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that never go back, and waiting."""

    def now(self) -> float: ...

    def came(self, waited_s: float) -> float:
        """Return when something came that has waited so long to be taken."""
        ...

    async def wait(self, event: asyncio.Event, *, until: float) -> None:
        """Return when the event is set or this instant has come."""
        ...


class SystemClock:
    """The real one."""

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
