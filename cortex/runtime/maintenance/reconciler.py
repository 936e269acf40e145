"""Books late calls and calls lost with their pods; resumes jobs whose budget has room again.

Reads and writes: the pod's pending settlements, reservations of ended attempts, and jobs that wait
for a budget. Raising a budget resumes jobs by itself; this finds the rest of them, and those that
began to wait meanwhile.
Invariants: a call is booked once and a job gets one task, however many pods do this; one process at
a time does all but booking its own calls. A tick reads a bounded part of the reservations and of
the waiting jobs, and the next one continues from there.

On failure: an outage is waited out.
On stop: nothing to do.
"""

import random
from typing import Final
from uuid import UUID

import structlog

from cortex.actors.runner import SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.store import budgets
from cortex.store.budgets import FIRST

READ_MAX: Final = 1000
"""Reservations, and waiting jobs, that a tick reads: some milliseconds of each."""

_log = structlog.get_logger(__name__)


class Reconciler(Runner):
    name = "reconcile"
    failure = "budgets not reconciled"

    def __init__(self, port: Port, *, unsettled: PendingSettlements, rng: random.Random) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._unsettled = unsettled
        self._after_call: UUID | None = None
        self._after_job = FIRST

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Book this process's bills, then read the next reservations and the next jobs."""
        if late := await self._unsettled.settle():
            _log.info("late calls booked", calls=late)
        crash_point("before_lost_calls")
        lost = await self._port(budgets.sweep, limit=READ_MAX, after=self._after_call)
        self._after_call = lost.after
        if lost.count:
            crash_point("after_lost_calls")
            _log.warning("calls of ended attempts booked", calls=lost.count)
        crash_point("before_wake")
        woken = await self._port(budgets.wake_next, limit=READ_MAX, after=self._after_job)
        self._after_job = woken.after or FIRST
        if woken.count:
            crash_point("after_wake")
            _log.info("jobs resumed by their budget", jobs=woken.count)
        is_behind = lost.after is not None or woken.after is not None
        return TickResult(
            items=late + lost.count + woken.count,
            is_skipped=lost.is_skipped and woken.is_skipped,
            next_s=SOON_S if is_behind else None,
            is_partial=is_behind,
        )
