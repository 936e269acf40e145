"""Lets jobs of limited types through, as far as their limits have room, in turns between keys.

Reads and writes: tasks that are held, and the places that jobs hold.
Invariants: a limit is never exceeded: one process at a time takes places, and each is freed in the
transaction that deletes its task.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import LIMIT
from cortex.runtime.maintenance.due import result_of
from cortex.store import limits

AGAIN_S: Final = 0.05
"""After a pass that another process kept from working: it may have begun too early to see what
woke this one."""
LEAST_S: Final = 0.02
WALKED_MAX_S: Final = 1.0
"""Between two passes that look at a part of the keys each, where nothing has room: the first ones
follow soon, so that all keys are looked at within a second or two."""
POLL_S: Final = 5.0
"""At most this long: places are freed by whoever ends a job, and a notification may be lost."""


class Limits(Runner):
    name = "limits"
    failure = "held jobs not read"
    items_max = limits.ADMIT_BATCH
    woken_by = frozenset({LIMIT})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._fruitless_count = 0

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_admission")
        done = await self._port(limits.admit, limit=budget.items)
        if done.count:
            crash_point("after_admission")
        if done.is_skipped:
            return TickResult(is_skipped=True, next_s=AGAIN_S)
        self._fruitless_count = 0 if done.count else self._fruitless_count + 1
        least_s = min(LEAST_S * self._fruitless_count, WALKED_MAX_S)
        return result_of(done, budget, least_s=max(LEAST_S, least_s), most_s=POLL_S)
