"""Follows requests to drain this pod, and to let it take jobs again.

Reads: the drain request of this pod, one statement a second or on a hint.
On failure: an outage is waited out; the request stays in the database.
On stop: nothing to do; a pod that leaves hands its jobs back anyway.
"""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import CONTROL
from cortex.runtime.running import Observer, RunningJob, RunningJobs
from cortex.store import drains

POLL_S: Final = 1.0

_log = structlog.get_logger(__name__)


class DrainRequests(Runner, Observer):
    name = "drain_requests"
    failure = "drain requests not read"
    woken_by = frozenset({CONTROL})

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        running: RunningJobs,
        on_change: Callable[[], None],
        rng: random.Random,
    ) -> None:
        """`on_change` is called when there is something new to show."""
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._pod_id = pod_id
        self._running = running
        self._on_change = on_change

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Read the request; report a change."""
        is_requested = await self._port(drains.is_requested, self._pod_id)
        if is_requested is self._running.is_drain_requested:
            return TickResult()
        event = "drain requested" if is_requested else "drain request withdrawn"
        _log.info(event, jobs=len(self._running))
        self._running.request_drain(is_requested=is_requested)
        self._on_change()
        return TickResult(items=1)

    def job_ended(self, _: RunningJob) -> None:
        if self._running.is_drain_requested and not len(self._running):
            _log.info("drained")
            self._on_change()
