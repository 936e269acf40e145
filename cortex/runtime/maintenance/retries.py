"""Resumes jobs in RETRY when they are due: each gets a new task.

Reads: jobs in RETRY without a task, and the breakers that they wait for. Writes: their tasks.
Invariants: a job gets one task at most; one pod at a time does this. Jobs that wait for an open
breaker stay, except one that may probe it, and the next one if no pod claims that.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, Runner
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import BREAKER
from cortex.store import retries

BATCH_MAX: Final = 500
POLL_S: Final = 0.5


class Retries(Runner):
    """The runner."""

    name = "retries"
    failure = "due retries not read"
    woken_by = frozenset({BREAKER})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port

    async def tick(self) -> float | None:
        crash_point("before_due")
        due = await self._port(retries.due, limit=BATCH_MAX)
        if due:
            crash_point("after_due")
        return AT_ONCE if due >= BATCH_MAX else None
