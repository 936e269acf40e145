"""Stops jobs that a person cancelled, whoever asked and from wherever.

Reads: the cancel requests of this pod's jobs, one statement a second or at a hint.
On failure: an outage is waited out; the request stays in the database.
On stop: nothing to do; a cancelled job that is handed back is ended by its next pod.
"""

import random
from uuid import UUID

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.services.outage import Outage
from cortex.services.running import RunningJobs, Stop
from cortex.store import jobs
from cortex.store.bridge import Port

POLL_S = 1.0

_log = structlog.get_logger(__name__)


class Control:
    """The actor; `wake` looks at once."""

    name = "control"

    def __init__(
        self, port: Port, *, pod_id: UUID, running: RunningJobs, rng: random.Random
    ) -> None:
        self._port = port
        self._pod_id = pod_id
        self._running = running
        self._pacer = Pacer(rng=rng)
        self._outage = Outage(rng=rng)

    def wake(self) -> None:
        """There may be a request."""
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for requests until cancelled."""
        task_status.started()
        while True:
            async with self._outage.sat_out(_log, "cancel requests not read"):
                await self.tick()
            await self._pacer.wait(POLL_S)

    async def tick(self) -> None:
        """Stop every job of this pod that was asked to end."""
        if not len(self._running):
            return
        requests = await self._port(
            jobs.cancel_requests, pod_id=self._pod_id, job_ids=self._running.job_ids
        )
        for job_id, attempt in requests:
            _log.info("cancelling", job=str(job_id), attempt=attempt)
            self._running.end(job_id, attempt, Stop.CANCELLED)
