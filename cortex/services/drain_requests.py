"""Obeys people who ask this pod to drain, and who let it take jobs again.

Reads: the pod's own row, one look a second or at a hint.
Invariants: while a request stands nothing is claimed, and running jobs are handed back at their
next checkpoint, as on SIGTERM; none is aborted, and the process stays.

On failure: an outage is waited out, and what was last heard holds.
On stop: nothing to do; a pod that is told to end leaves as ever.
"""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.services.outage import Outage
from cortex.services.running import RunningJobs
from cortex.store import drains
from cortex.store.bridge import Port

POLL_S: Final = 1.0

_log = structlog.get_logger(__name__)


class DrainRequests:
    """The actor; `wake` looks at once."""

    name = "drain_requests"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        running: RunningJobs,
        tell: Callable[[], None],
        rng: random.Random,
    ) -> None:
        """`tell` is called when there is something new to be shown."""
        self._port = port
        self._pod_id = pod_id
        self._running = running
        self._tell = tell
        self._pacer = Pacer(rng=rng)
        self._outage = Outage(rng=rng)
        running.when_ended.append(self._ended)

    def wake(self) -> None:
        """There may be a request, or none any more."""
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for requests until cancelled."""
        task_status.started()
        while True:
            async with self._outage.sat_out(_log, "drain requests not read"):
                await self.tick()
            await self._pacer.wait(POLL_S)

    async def tick(self) -> None:
        """Look once; tell when it has changed."""
        is_requested = await self._port(drains.is_requested, self._pod_id)
        if is_requested is self._running.is_drain_requested:
            return
        self._running.is_drain_requested = is_requested
        told = "asked to drain" if is_requested else "asked to take jobs again"
        _log.info(told, jobs=len(self._running))
        self._tell()
        if not is_requested:
            self._running.on_undrained()

    def _ended(self, _: UUID) -> None:
        if self._running.is_drain_requested and not len(self._running):
            _log.info("drained")
            self._tell()
