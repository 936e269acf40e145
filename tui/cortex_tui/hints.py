"""Hints from the database that something changed, so that the screen updates before the next poll.

Owns: one connection that listens to the pods' notifications. Nothing depends on it: behind a
pooler, or while it is lost, polling alone finds the same changes.
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
    """Listen until cancelled; reconnects when the connection is lost."""
    while True:
        lost = asyncio.Event()
        line = Dedicated(profile, on_lost=lost.set)
        try:
            with suppress(CortexError):  # polls report that the database is unavailable
                await line.open()
                if line.is_pooled:
                    return
                for channel in CHANNELS:
                    await line.listen(channel, lambda _: on_hint())
                await lost.wait()
        finally:
            line.cut()
        await clock.wait(asyncio.Event(), until=clock.now() + AGAIN_S)
