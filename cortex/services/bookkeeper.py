"""Books the calls that died with their pods, and lets jobs go on whose budget has room again.

Reads and writes: reservations of attempts that are over, and jobs that wait for a budget. A raise
lets jobs go on by itself; this one finds those that began to wait while it happened.
Invariants: a call is booked once and a job gets one task, however many pods do this at once.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.domain.errors import UnavailableError
from cortex.store import budgets
from cortex.store.bridge import Port

LOST_MAX: Final = 500
NAMES_MAX: Final = 1000

_log = structlog.get_logger(__name__)


class Bookkeeper:
    """The runner."""

    name = "bookkeeper"

    def __init__(self, port: Port, *, rng: random.Random, every_s: float = 5.0) -> None:
        self._port = port
        self._every_s = every_s
        self._pacer = Pacer(rng=rng, jitter=0.5)
        self._after = ""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled."""
        task_status.started()
        while True:
            try:
                await self.tick()
            except UnavailableError as error:
                _log.warning("budgets not looked after", error=error.message)
            await self._pacer.wait(self._every_s)

    async def tick(self) -> None:
        """Book one batch of lost calls, and let one batch of jobs go on."""
        lost = await self._port(budgets.sweep, limit=LOST_MAX)
        if lost:
            _log.warning("booked calls of attempts that are over", calls=lost)
        names, after = await self._port(budgets.waited_for, after=self._after, limit=NAMES_MAX)
        self._after = after or ""
        if names:
            woken = await self._port(budgets.wake, names)
            if woken:
                _log.info("jobs go on, their budget has room", jobs=woken)
