"""Lets jobs in RETRY go on when they are due: each gets a new task.

Reads: jobs in RETRY without a task, and the breakers that they wait for. Writes: their tasks.
Invariants: a job gets one task at most, however many pods run this: one at a time looks; jobs that
wait for an open breaker stay, but for one that may probe it, and the next if no pod claims that.

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
from cortex.store import retries

BATCH_MAX: Final = 200
POLL_S: Final = 0.5

_log = structlog.get_logger(__name__)


class Retries:
    """The runner; `wake` looks at once."""

    name = "retries"

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        self._port = port
        self._pacer = Pacer(rng=rng)
        self._outage = Outage(rng=rng)

    def wake(self) -> None:
        """A breaker has changed, or a person let a job go on."""
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for due jobs until cancelled."""
        task_status.started()
        while True:
            due = 0
            async with self._outage.sat_out(_log, "due retries not looked for"):
                due = await self.tick()
            if due < BATCH_MAX:
                await self._pacer.wait(POLL_S)
            else:
                await trio.lowlevel.checkpoint()

    async def tick(self) -> int:
        """Let one batch go on; return how many."""
        crash_point("before_due")
        due = await self._port(retries.due, limit=BATCH_MAX)
        if due:
            crash_point("after_due")
        return due
