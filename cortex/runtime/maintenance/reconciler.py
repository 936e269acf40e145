"""Books calls late, or as lost with their pods; lets jobs go on whose budget has room again.

Reads and writes: the pod's unsettled bills, reservations of attempts that are over, and jobs that
wait for a budget. A raise lets jobs go on by itself; this one finds the rest of them, and those
that began to wait while it happened.
Invariants: a call is booked once and a job gets one task, however many pods do this at once. A tick
looks at a bounded part of the reservations and of the jobs that wait, and goes on there next time.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import Runner
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.store import budgets
from cortex.store.budgets import FIRST

LOOK_MAX: Final = 1000
"""Reservations, and jobs that wait, that a tick looks at: some milliseconds of each."""

_log = structlog.get_logger(__name__)


class Reconciler(Runner):
    """The runner."""

    name = "bookkeeper"
    failure = "budgets not looked after"
    jitter = 0.5

    def __init__(
        self, port: Port, *, unsettled: PendingSettlements, rng: random.Random, every_s: float = 5.0
    ) -> None:
        super().__init__(rng=rng, interval_s=every_s)
        self._port = port
        self._unsettled = unsettled
        self._after_call: UUID | None = None
        self._after_job = FIRST

    async def tick(self) -> None:
        """Book what waits for it, then look at the next reservations and the next jobs."""
        if late := await self._unsettled.settle():
            _log.info("booked calls late", calls=late)
        crash_point("before_lost_calls")
        lost, self._after_call = await self._port(
            budgets.sweep, limit=LOOK_MAX, after=self._after_call
        )
        if lost:
            crash_point("after_lost_calls")
        if lost:
            _log.warning("booked calls of attempts that are over", calls=lost)
        crash_point("before_wake")
        woken, after = await self._port(budgets.wake_next, limit=LOOK_MAX, after=self._after_job)
        if woken:
            crash_point("after_wake")
        self._after_job = after or FIRST
        if woken:
            _log.info("jobs go on, their budget has room", jobs=woken)
