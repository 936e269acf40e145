"""Closes requests for approval that nobody decided in time, with what follows for their jobs.

Reads and writes: requests that are due, their jobs and tasks.
Invariants: expired is never denied; from its instant on nobody can decide, also before it is
closed here. One pod at a time looks.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, Runner
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store import approvals

POLL_S: Final = 1.0


class Expiries(Runner):
    """The runner."""

    name = "expiries"
    failure = "expired approvals not looked for"

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port

    async def tick(self) -> float | None:
        """Close one batch."""
        crash_point("before_expiry")
        expired = await self._port(approvals.expire)
        if expired:
            crash_point("after_expiry")
        return AT_ONCE if expired >= approvals.EXPIRE_BATCH else None
