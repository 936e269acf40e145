"""Works off what people do to many dead letters at once: retries them or gives them up.

Reads: acts that are under way. Writes: their letters, new jobs that go on from them, and how far
each act is, in one transaction a batch.
Invariants: one pod at a time; no more letters a second than an act's rate, across all pods; each
letter of an act has one turn, however many pods die.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import Runner
from cortex.domain.clock import Chance
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import CONTROL
from cortex.store import bulk_operations

POLL_S: Final = 5.0
"""A new act is hinted; one statement finds it if that is lost."""


class BulkOperations(Runner):
    """The runner."""

    name = "dead_acts"
    failure = "acts on dead letters not looked for"
    woken_by = frozenset({CONTROL})

    def __init__(self, port: Port, *, rng: random.Random, chance: Chance) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._chance = chance

    async def tick(self) -> float | None:
        """Do one batch, if one is due."""
        crash_point("before_dead_act")
        due_s = await self._port(bulk_operations.work_off, new_id=self._chance.new_id)
        crash_point("after_dead_act")
        return None if due_s is None else min(due_s, POLL_S)
