"""Resumes jobs in RETRY when they are due: each gets a new task.

Reads: jobs in RETRY without a task, and the breakers that they wait for. Writes: their tasks.
Invariants: a job gets one task at most; one process at a time does this. Jobs that wait for an open
breaker stay, except one that may probe it, and the next one if no pod claims that.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST, RETRY
from cortex.runtime.liveness.listener import BREAKER
from cortex.runtime.maintenance.due import result_of
from cortex.store import retries

BATCH_MAX: Final = 500
HELD_S: Final = 0.5
"""While jobs wait for a breaker or a quota, which may admit them at any time."""
POLL_S: Final = 5.0
"""At most this long, even if nothing is due sooner: other pods' retries, in case they leave before
these are due, and a clock that is set forward."""


class Retries(Runner):
    name = "retries"
    failure = "due retries not read"
    items_max = BATCH_MAX
    woken_by = frozenset({BREAKER, RETRY, POD_LOST})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_due")
        done = await self._port(retries.due, limit=budget.items)
        if done.count:
            crash_point("after_due")
        least_s = HELD_S if done.is_held else SOON_S
        return result_of(done, budget, least_s=least_s, most_s=POLL_S)
