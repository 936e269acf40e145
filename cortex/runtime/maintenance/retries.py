"""Lets jobs in RETRY go on when they are due: each gets a new task.

Reads: jobs in RETRY without a task, and the breakers that they wait for. Writes: their tasks.
Invariants: a job gets one task at most, however many pods run this: one at a time looks; jobs that
wait for an open breaker stay, but for one that may probe it, and the next if no pod claims that.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, Runner
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import BREAKER
from cortex.store import retries

BATCH_MAX: Final = 200
POLL_S: Final = 0.5


class Retries(Runner):
    """The runner."""

    name = "retries"
    failure = "due retries not looked for"
    woken_by = frozenset({BREAKER})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port

    async def tick(self) -> float | None:
        """Let one batch go on."""
        crash_point("before_due")
        due = await self._port(retries.due, limit=BATCH_MAX)
        if due:
            crash_point("after_due")
        return AT_ONCE if due >= BATCH_MAX else None
