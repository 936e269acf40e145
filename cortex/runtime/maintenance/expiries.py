"""Closes requests for approval that nobody decided in time, with what follows for their jobs.

Reads and writes: requests that are due, their jobs and tasks.
Invariants: expired is never denied; from its instant on nobody can decide, also before it is
closed here. One pod at a time looks.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.backoff import Outage
from cortex.store import approvals

POLL_S: Final = 1.0

_log = structlog.get_logger(__name__)


class Expiries:
    """The runner."""

    name = "expiries"

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        self._port = port
        self._pacer = Pacer(rng=rng)
        self._outage = Outage(rng=rng)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for requests that are due until cancelled."""
        task_status.started()
        while True:
            expired = 0
            async with self._outage.sat_out(_log, "expired approvals not looked for"):
                expired = await self.tick()
            if expired < approvals.EXPIRE_BATCH:
                await self._pacer.wait(POLL_S)
            else:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> int:
        """Close one batch; return how many."""
        crash_point("before_expiry")
        expired = await self._port(approvals.expire)
        if expired:
            crash_point("after_expiry")
        return expired
