"""Deletes what has expired: the idempotency keys of yesterday.

Reads and writes: expired keys only, which count as free already.
Invariants: the oldest first, at most 1000 a pass; any number of pods may do it at once, each
skips what another one deletes.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final

import structlog
import trio

from cortex.actors.ticker import Pacer
from cortex.domain.errors import UnavailableError
from cortex.store import idempotency
from cortex.store.bridge import Port

BATCH_MAX: Final = 1000
BACKLOG_PAUSE_S: Final = 1.0
"""After a full pass more is due: a thousand keys a second and pod are more than come in."""

_log = structlog.get_logger(__name__)


class Housekeeping:
    """The runner."""

    name = "housekeeping"

    def __init__(self, port: Port, *, rng: random.Random, every_s: float) -> None:
        self._port = port
        self._every_s = every_s
        self._pacer = Pacer(rng=rng)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Delete until cancelled."""
        task_status.started()
        while True:
            deleted = 0
            try:
                deleted = await self.tick()
            except UnavailableError as error:
                _log.warning("housekeeping failed", error=error.message)
            is_behind = deleted == BATCH_MAX
            await self._pacer.wait(BACKLOG_PAUSE_S if is_behind else self._every_s)

    async def tick(self) -> int:
        """Delete one batch; return how many keys it had."""
        return await self._port(idempotency.sweep, limit=BATCH_MAX)
