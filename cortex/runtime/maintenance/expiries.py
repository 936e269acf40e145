"""Closes requests for approval that were not decided in time, with the consequences for their jobs.

Reads and writes: requests that are due, their jobs and tasks.
Invariants: expired is never denied; from the expiry on no decision is possible, even before the
request is closed here. One pod at a time does this.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import AT_ONCE, Runner
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.store import approvals

POLL_S: Final = 1.0


class Expiries(Runner):
    """The runner."""

    name = "expiries"
    failure = "expired approvals not read"

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port

    async def tick(self) -> float | None:
        crash_point("before_expiry")
        expired = await self._port(approvals.expire)
        if expired:
            crash_point("after_expiry")
        return AT_ONCE if expired >= approvals.EXPIRE_BATCH else None
