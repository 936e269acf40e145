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

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.domain.clock import Chance
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.backoff import Outage
from cortex.store import bulk_operations

POLL_S: Final = 5.0
"""A new act is hinted; one statement finds it if that is lost."""

_log = structlog.get_logger(__name__)


class BulkOperations:
    """The runner; `wake` looks at once."""

    name = "dead_acts"

    def __init__(self, port: Port, *, rng: random.Random, chance: Chance) -> None:
        self._port = port
        self._chance = chance
        self._pacer = Pacer(rng=rng)
        self._outage = Outage(rng=rng)

    def wake(self) -> None:
        """There may be an act, or one that goes on."""
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        task_status.started()
        while True:
            due_s = POLL_S
            async with self._outage.sat_out(_log, "acts on dead letters not looked for"):
                due_s = await self.tick()
            await self._pacer.wait(min(due_s, POLL_S))

    async def tick(self) -> float:
        """Do one batch, if one is due; return in how many seconds to look again."""
        crash_point("before_dead_act")
        due_s = await self._port(bulk_operations.work_off, new_id=self._chance.new_id)
        crash_point("after_dead_act")
        return POLL_S if due_s is None else due_s
