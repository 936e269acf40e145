"""Frees the jobs of pods that are alive but silent, or whose lock tells nothing.

Reads and writes: jobs whose heartbeat is older than the threshold, and their tasks.
Invariants: oldest first, at most 100 a pass, so that an outage does not become a stampede; after
an outage of the database (or its restart) nobody is swept for one full threshold.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.domain.errors import UnavailableError
from cortex.services.metrics import Metrics
from cortex.services.standing import Standing
from cortex.store import pods, tasks
from cortex.store.bridge import Port

BATCH_MAX: Final = 100

_log = structlog.get_logger(__name__)


class Sweeper:
    """The runner."""

    name = "sweeper"

    def __init__(
        self,
        port: Port,
        *,
        standing: Standing,
        zombie_s: float,
        sweep_s: float,
        rng: random.Random,
        metrics: Metrics | None = None,
    ) -> None:
        self._port = port
        self._metrics = metrics or Metrics()
        self._standing = standing
        self._zombie_s = zombie_s
        self._sweep_s = sweep_s
        self._pacer = Pacer(rng=rng)
        self._quiet_until = float("-inf")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sweep until cancelled."""
        task_status.started()
        while True:
            try:
                await self.tick()
            except UnavailableError as error:
                self._quiet_until = trio.current_time() + self._zombie_s
                _log.warning("sweep failed", error=error.message)
            await self._pacer.wait(self._sweep_s)

    async def tick(self) -> None:
        """Free one batch of jobs whose pods are silent."""
        now = trio.current_time()
        if not self._standing.is_sure:
            # It has lost the database itself: the others' heartbeats may be late by that outage.
            self._quiet_until = now + self._zombie_s
        if now < self._quiet_until:
            return
        freed, failed = await self._port(tasks.sweep, silent_s=self._zombie_s, limit=BATCH_MAX)
        if freed or failed:
            self._metrics.recovered("swept", freed=freed, failed=failed)
            _log.warning("swept jobs of silent pods", freed=freed, failed=failed)
        await self._port(pods.retire_silent, silent_s=2 * self._zombie_s)
