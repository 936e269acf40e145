"""Reminds people of requests for approval that have waited for half, or nine tenths, of their time.

Reads and writes: requests that wait, and the outbox, which sends the reminders.
Invariants: a reminder is published in the transaction that records it, so no process repeats it;
none follows a decision. One process at a time does this.

On failure: an outage is waited out; of two reminders that became due meanwhile only the later one
is sent.
On stop: nothing to do; the other pods run it, too.
"""

import random
from typing import Final

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST, REMINDER
from cortex.runtime.maintenance.due import result_of
from cortex.store import approvals

AGAIN_S: Final = 1.0
"""While another session holds a request that is due."""
POLL_S: Final = 30.0
"""At most this long, even if nothing is due sooner: other pods' requests."""


class Notifications(Runner):
    name = "notifications"
    failure = "due reminders not read"
    woken_by = frozenset({REMINDER, POD_LOST})

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port

    async def tick(self, budget: TickBudget, /) -> TickResult:
        crash_point("before_reminder")
        done = await self._port(approvals.remind, limit=budget.items)
        crash_point("after_reminder")
        return result_of(done, budget, least_s=AGAIN_S, most_s=POLL_S)
