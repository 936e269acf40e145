"""Known costs that could not be booked yet because the database was unavailable for too long.

Owns: at most 10,000 bills, in memory. The pod's budget guard adds bills; its reconciler books them
once the database is back.
Invariants: every bill is booked once, by any number of tries; until then its room stays reserved.

On failure: an outage leaves all bills in place.
On stop: the pod books them before it signs off. Bills lost with a pod are swept at their estimate.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import structlog

from cortex.crash_points import crash_point
from cortex.domain.errors import CortexError, UnavailableError
from cortex.postgres.bridge import Port
from cortex.store import budgets
from cortex.store.budgets import Bill

UNSETTLED_MAX: Final = 10_000
BATCH_MAX: Final = 500

_log = structlog.get_logger(__name__)


class PendingSettlements:
    """The bills of a pod that wait for the database."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._bills: dict[UUID, Bill] = {}

    @property
    def count(self) -> int:
        return len(self._bills)

    def keep(self, bill: Bill) -> None:
        """Keep a bill; if there are too many, log it and leave it to the sweep."""
        if len(self._bills) >= UNSETTLED_MAX:
            _left_to_the_sweep(bill, "too many pending settlements")
        else:
            self._bills[bill.call_id] = bill

    async def settle(self) -> int:
        """Book all bills; return how many were not booked before.

        Raises `UnavailableError` when the database is unavailable; unbooked bills stay.
        """
        bills = list(self._bills.values())
        booked = 0
        for start in range(0, len(bills), BATCH_MAX):
            booked += await self._book(bills[start : start + BATCH_MAX])
        return booked

    async def settle_of(self, job_id: UUID) -> None:
        """Book the bills of one job before its next call. Raises `UnavailableError`."""
        bills = [bill for bill in self._bills.values() if bill.job_id == job_id]
        if bills:
            await self._book(bills)

    async def _book(self, bills: Sequence[Bill]) -> int:
        booked = 0
        try:
            crash_point("before_settle")
            booked = await self._port(budgets.settle, bills)
            crash_point("after_settle")
        except UnavailableError:
            raise
        except CortexError as error:
            if len(bills) > 1:  # a refused bill must not hold up the others
                return sum([await self._book([bill]) for bill in bills])
            _left_to_the_sweep(bills[0], error.message)
        for bill in bills:
            self._bills.pop(bill.call_id, None)
        return booked


def _left_to_the_sweep(bill: Bill, error: str) -> None:
    bill_fields = {"call": str(bill.call_id), "cost_usd": str(bill.cost_usd), **bill.data}
    _log.error("cost not booked, swept later", error=error, **bill_fields)
