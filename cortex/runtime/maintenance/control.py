"""Stops jobs that a person cancelled, from any client.

Reads: the cancel requests of this pod's jobs, one statement a second or on a hint.
On failure: an outage is waited out; the request stays in the database.
On stop: nothing to do; a cancelled job that is handed back is ended by its next pod.
"""

import random
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.postgres.bridge import Port
from cortex.runtime.liveness.listener import CONTROL
from cortex.runtime.running import RunningJobs, Stop
from cortex.store import jobs

POLL_S: Final = 1.0

_log = structlog.get_logger(__name__)


class Control(Runner):
    name = "control"
    failure = "cancel requests not read"
    woken_by = frozenset({CONTROL})

    def __init__(
        self, port: Port, *, pod_id: UUID, running: RunningJobs, rng: random.Random
    ) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._pod_id = pod_id
        self._running = running

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Stop every job of this pod that has a cancel request."""
        if not len(self._running):
            return TickResult()
        requests = await self._port(
            jobs.cancel_requests, pod_id=self._pod_id, job_ids=self._running.job_ids
        )
        for job_id, attempt in requests:
            _log.info("job cancelled", job=str(job_id), attempt=attempt)
            self._running.end(job_id, attempt, Stop.CANCELLED)
        return TickResult(items=len(requests))
