"""Cancels the children of jobs that have ended, and theirs: down to the leaves.

Reads and writes: jobs that have ended and have children that have not; these children.
Invariants: what an ended job held is given up first, so that nothing of it begins any more. A job
stays on the list until each of its children has ended or been asked to. A child that is cancelled
so, and has children, comes onto the list when it ends.

On failure: an outage is waited out; the list is in the database.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST
from cortex.runtime.liveness.listener import WAKES
from cortex.store import children

BATCH_MAX: Final = 500


class Children(Runner):
    name = "children"
    failure = "children not cancelled"
    items_max = BATCH_MAX
    woken_by = frozenset({WAKES, POD_LOST})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Cancel one batch of children."""
        crash_point("before_cut")
        done = await self._port(children.cut, limit=budget.items)
        if done.count:
            crash_point("after_cut")
        next_s = AT_ONCE if done.count >= budget.items else SOON_S if done.left else None
        return TickResult(items=done.count, next_s=next_s)
