"""The living pods, as their records show them.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.postgres.bridge import Port
from cortex.store import pods

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreFleet:
    """The fleet of all job contexts of a pod."""

    port: Port
    rng: random.Random

    async def tools(self) -> list[str]:
        return await retry_while_unavailable(
            lambda: self.port(pods.live_tools), log=_log, event="pods not read", rng=self.rng
        )
