"""Wakes jobs that have what they wait for: a signal, their children, a decision.

Reads and writes: the rows that say which jobs may have it, which it deletes; and these jobs' tasks.
Invariants: a job gets one task at most. A row is deleted in the transaction that has looked for its
job, and not before the rows of both sides are visible: see `0032_waits.sql`.

On failure: an outage is waited out; rows stay until somebody handles them.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST, WAKE
from cortex.runtime.liveness.listener import WAKES
from cortex.store import waits

BATCH_MAX: Final = 500


class Wakes(Runner):
    name = "wakes"
    failure = "waiting jobs not woken"
    items_max = BATCH_MAX
    woken_by = frozenset({WAKE, WAKES, POD_LOST})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Handle one batch of rows."""
        crash_point("before_waits")
        done = await self._port(waits.wake, limit=budget.items)
        if done.woken:
            crash_point("after_waits")
        next_s = None
        if done.handled >= budget.items:
            next_s = AT_ONCE
        elif done.postponed:
            next_s = SOON_S
        return TickResult(items=done.handled, next_s=next_s)
