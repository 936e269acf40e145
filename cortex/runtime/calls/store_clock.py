"""The clock of the database for the timers of jobs.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from datetime import datetime

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.postgres.bridge import Port
from cortex.store import clock

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreClock:
    """The clock of all job contexts of a pod."""

    port: Port
    rng: random.Random

    async def now(self) -> datetime:
        return await retry_while_unavailable(
            lambda: self.port(clock.now), log=_log, event="clock not read", rng=self.rng
        )
