"""Carries out bulk operations on dead letters: retries them or gives them up.

Reads: unfinished bulk operations. Writes: their dead letters, new jobs that continue them, and the
progress of each operation, in one transaction per batch.
Invariants: one pod at a time; at most an operation's rate in dead letters per second, across all
pods; each dead letter of an operation gets one turn, however many pods die.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import Runner
from cortex.crash_points import crash_point
from cortex.domain.clock import Chance
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import CONTROL
from cortex.store import bulk_operations

POLL_S: Final = 5.0
"""A notification announces a new operation; one statement finds it if that is lost."""


class BulkOperations(Runner):
    """The runner."""

    name = "dead_acts"
    failure = "bulk operations not read"
    woken_by = frozenset({CONTROL})

    def __init__(self, port: Port, *, rng: random.Random, chance: Chance) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._chance = chance

    async def tick(self) -> float | None:
        crash_point("before_dead_act")
        due_s = await self._port(bulk_operations.work_off, new_id=self._chance.new_id)
        crash_point("after_dead_act")
        return None if due_s is None else min(due_s, POLL_S)
