"""Closes requests for approval that were not decided in time, with the consequences for their jobs.

Reads and writes: requests that are due, their jobs and tasks.
Invariants: expired is never denied; from the expiry on no decision is possible, even before the
request is closed here. One process at a time does this.

On failure: an outage is waited out.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.hints import EXPIRY, POD_LOST
from cortex.runtime.maintenance.due import result_of
from cortex.store import approvals

AGAIN_S: Final = 1.0
"""While a due request cannot be closed: another session holds its rows."""
POLL_S: Final = 5.0
"""At most this long, even if nothing is due sooner: other pods' requests, and a clock that is set
forward."""


class Expiries(Runner):
    name = "expire_approvals"
    failure = "expired approvals not read"
    woken_by = frozenset({EXPIRY, POD_LOST})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_expiry")
        done = await self._port(approvals.expire, limit=budget.items)
        if done.count:
            crash_point("after_expiry")
        return result_of(done, budget, least_s=AGAIN_S, most_s=POLL_S)
