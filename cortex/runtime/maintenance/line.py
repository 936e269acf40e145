"""Keeps the line of ready tasks: sets aside what is paused, and raises what has waited long.

It also looks at some named queues in each turn, for one that nothing has moved on.

Reads and writes: tasks that are ready or paused; names queues for `tasks.promote`.
Invariants: a pause holds without it, because claims look themselves; this keeps a backlog of a
paused tenant from being read by each claim. A task rises by one priority in use per minute once it
has been ready for ten minutes, so that a low priority is not starved for ever; its job keeps the
priority that it was given.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

import structlog

from cortex.actors.runner import AT_ONCE, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store import pauses, tasks

EVERY_S: Final = 1.0

_log = structlog.get_logger(__name__)


class Line(Runner):
    name = "line"
    failure = "line of tasks not kept"
    items_max = pauses.PARK_BATCH

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._walked_to = ""

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_line")
        counts = [
            await self._port(pauses.unpark),
            await self._port(pauses.park),
            await self._port(pauses.age, limit=budget.items),
        ]
        walk = await self._port(tasks.walk_queues, after=self._walked_to)
        self._walked_to = walk.latest or ""
        if walk.named_count:
            _log.warning("named queues stood still", queues=walk.named_count)
        if sum(counts):
            crash_point("after_line")
        is_behind = max(counts) >= budget.items
        return TickResult(items=sum(counts), next_s=AT_ONCE if is_behind else EVERY_S)
