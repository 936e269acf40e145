"""Hints from the database that something changed, so that it shows before the next look is due.

Owns: one connection that listens to what pods tell each other. Nothing depends on it: behind a
pooler, or while it is lost, the looks alone find the same.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cortex.domain.errors import CortexError
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex_tui.clock import Clock

CHANNELS: Final = ("cortex_task", "cortex_breaker")
AGAIN_S: Final = 2.0


async def hear(profile: Profile, clock: Clock, *, on_hint: Callable[[], None]) -> None:
    """Listen until cancelled; opens the connection anew when it is lost."""
    while True:
        lost = asyncio.Event()
        line = Dedicated(profile, on_lost=lost.set)
        try:
            with suppress(CortexError):  # the looks tell that the database is not there
                await line.open()
                if line.is_pooled:
                    return
                for channel in CHANNELS:
                    await line.listen(channel, lambda _: on_hint())
                await lost.wait()
        finally:
            line.cut()
        await clock.wait(asyncio.Event(), until=clock.now() + AGAIN_S)
