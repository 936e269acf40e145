"""Durable timers: a job waits for an instant of the database's clock and holds nothing."""

from datetime import datetime
from typing import Final, Protocol

import trio

from cortex.domain.control_flow import Suspended
from cortex.domain.waiting import SLEEP

SHORT_S: Final = 5.0
"""A shorter rest stays in memory: that costs less than to leave the pod and come back."""


class DatabaseClock(Protocol):
    """Reads the clock that all pods share; given by the pod."""

    async def now(self) -> datetime: ...


async def sleep_until(
    instant: datetime, *, name: str, clock: DatabaseClock, short_s: float = SHORT_S
) -> None:
    """Return once the instant has passed. Raises `Suspended` if that takes over `short_s` seconds.

    `name` is the reason that people see.
    """
    left_s = (instant - await clock.now()).total_seconds()
    if left_s > short_s:
        raise Suspended(SLEEP, name, delay_s=left_s)
    if left_s > 0:
        await trio.sleep(left_s)
