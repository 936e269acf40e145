"""Money and tokens of model calls: reserves room before each call, books its cost after it.

Also in the limits of tokens per time that the type of its job has.

Owns: nothing; every reservation is a row, and those of a killed pod are swept.
Reads and writes: budget usage, reservations and cost facts, in one statement before the call and
one after it.
Invariants: an admitted call is booked once, under its own id; concurrent calls take no more than
the room that was left, unless there is only one of them.

On failure: before a call, an outage is waited out within the caller's limits. After a call it is
waited out for ten seconds; then the bill joins the pending settlements.
"""

import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import retry_while_unavailable
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.budget import WAITING_PREFIX, Estimate, spent_words, unpriced
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.job_limits import LIMIT
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation
from cortex.postgres.bridge import Port
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.store import budgets
from cortex.store.budgets import Bill, BudgetCall, BudgetVerdict

BACKOFF: Final = Backoff(base_s=0.05, cap_s=2.0)
SETTLE_WITHIN_S: Final = 10.0
PATIENCE_S: Final = 60.0
"""How long a call waits inside its step for room held by other jobs; then its job leaves the pod.

While calls of its own attempt hold the room it keeps waiting: they end by themselves, and leaving
would cut them off."""
COME_BACK_S: Final = 20.0
LEAST_S: Final = 0.2
SHORT_S: Final = 5.0
"""A wait for a limit that is not longer stays inside the step."""

_log = structlog.get_logger(__name__)


class StoreBudgetGuard:
    """Implements `cortex.durable.calls.BudgetGuard` on the port."""

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        new_id: Callable[[], UUID],
        unsettled: PendingSettlements,
        rng: random.Random,
    ) -> None:
        self._port = port
        self._pending = unsettled
        self._pod_id = pod_id
        self._new_id = new_id
        self._rng = rng

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        """See `cortex.durable.calls.BudgetGuard.reserve`.

        Raises `LeaseLost` when the attempt is over, and `RejectedError` when a money budget applies
        and the model has no known price. A job whose run budget is spent waits for a person; a job
        whose daily budget is spent waits for the next UTC day, or for a person who raises the
        budget; a job whose type has no tokens left for it waits until some no longer count.
        """
        call = self._call(caller, model, estimate)
        reservation = Reservation(id=call.id, caller=caller, model=model, estimate=estimate)
        try:
            await self._room_for(call)
        except trio.Cancelled:
            # A lost request may have taken room; book zero so that it does not keep it.
            self._pending.keep(_bill(reservation, Usage(), {"outcome": "cancelled"}, Decimal(0)))
            raise
        return reservation

    async def _room_for(self, call: BudgetCall) -> None:
        tries = 0
        patient_until = trio.current_time() + PATIENCE_S
        while True:
            verdict = await retry_while_unavailable(
                partial(self._ask, call),
                log=_log,
                event="budget reservation delayed",
                rng=self._rng,
            )
            if self._is_granted(verdict, call):
                return
            if verdict.word == "limit":
                if (verdict.wait_s or 0.0) > SHORT_S or trio.current_time() > patient_until:
                    raise _without_tokens(verdict, rng=self._rng)
                await trio.sleep(self._rng.uniform(1.0, 1.2) * max(verdict.wait_s or 0.0, LEAST_S))
                continue
            if verdict.is_own:
                patient_until = trio.current_time() + PATIENCE_S
            elif trio.current_time() > patient_until:
                raise Suspended(
                    f"{WAITING_PREFIX}{verdict.budget}",
                    f"other calls hold the room that is left in budget {verdict.budget}",
                    delay_s=self._rng.uniform(0.5, 1.0) * COME_BACK_S,
                )
            tries += 1
            await trio.sleep(BACKOFF.pause_s(tries, rng=self._rng, least=0.5))

    async def settle(
        self,
        reservation: Reservation,
        *,
        usage: Usage,
        cost_usd: Decimal | None,
        outcome: str,
        took_s: float,
        failure: Failure | None = None,
    ) -> None:
        """See `cortex.durable.calls.BudgetGuard.settle`. A cut-off booking is repeated later."""
        data: dict[str, Any] = {"outcome": outcome, "took_s": round(took_s, 3)}
        if failure is not None:
            data |= {"code": failure.code, "class": failure.cls.value}
        bill = _bill(reservation, usage, data, cost_usd)
        is_booked = False
        try:
            is_booked = await self._book(bill)
        finally:
            if not is_booked:
                self._pending.keep(bill)

    async def _book(self, bill: Bill) -> bool:
        """Book a call; False if the database stays unavailable for too long."""
        tries = 0
        give_up_at = trio.current_time() + SETTLE_WITHIN_S
        while True:
            tries += 1
            try:
                crash_point("before_settle")
                await self._port(budgets.settle, [bill])
                crash_point("after_settle")
            except UnavailableError as error:
                if trio.current_time() + BACKOFF.longest_s(tries) >= give_up_at:
                    bill_fields = {
                        "call": str(bill.call_id),
                        "cost_usd": str(bill.cost_usd),
                        **bill.data,
                    }
                    _log.warning("cost not booked yet", error=error.message, **bill_fields)
                    return False
            else:
                return True
            await trio.sleep(BACKOFF.pause_s(tries, rng=self._rng, least=0.5))

    def _call(self, caller: Caller, model: str, estimate: Estimate) -> BudgetCall:
        return BudgetCall(
            id=self._new_id(),
            lease=caller.lease,
            pod_id=self._pod_id,
            lineage_id=caller.lineage_id,
            tenant=caller.tenant,
            agent_id=caller.agent_id,
            agent_version=caller.agent_version,
            step=caller.key,
            model=model,
            estimate=estimate,
        )

    async def _ask(self, call: BudgetCall) -> BudgetVerdict:
        """Return the verdict. If there is none, call again with the same id."""
        await self._pending.settle_of(call.lease.job_id)
        crash_point("before_reserve")
        verdict = await self._port(budgets.reserve, call)
        crash_point("after_reserve")
        return verdict

    def _is_granted(self, verdict: BudgetVerdict, call: BudgetCall) -> bool:
        """Return whether the call may begin; False while other calls hold the remaining room."""
        match verdict.word:
            case "granted":
                return True
            case "busy" | "limit":
                return False
            case "spent":
                raise _suspended(verdict)
            case "unpriced":
                raise unpriced(call.model, str(verdict.budget))
            case _:
                raise LeaseLost(f"job {call.lease.job_id} is owned by another attempt")


def _bill(
    reservation: Reservation,
    usage: Usage,
    data: dict[str, Any],
    cost_usd: Decimal | None,
) -> Bill:
    saved_usd = reservation.caller.prices.saved(reservation.model, usage)
    if saved_usd is not None:
        data = data | {"saved_usd": str(saved_usd)}
    return Bill(
        call_id=reservation.id,
        job_id=reservation.caller.lease.job_id,
        tokens=usage.total_tokens,
        cost_usd=cost_usd,
        data=data | {"usage": usage.to_json(), "estimated": usage.is_estimated},
    )


def _suspended(verdict: BudgetVerdict) -> Suspended:
    spent, limit, unit = verdict.spent, verdict.limit, verdict.unit
    if spent is None or limit is None or unit is None:
        raise AssertionError(f"a spent budget has figures: {verdict}")
    return Suspended(
        f"{WAITING_PREFIX}{verdict.budget}",
        spent_words(str(verdict.budget), spent, limit, unit),
        delay_s=verdict.wait_s,
    )


def _without_tokens(verdict: BudgetVerdict, *, rng: random.Random) -> Suspended:
    used, limit = verdict.spent or Decimal(0), verdict.limit or Decimal(0)
    of_key = f" for {verdict.limit_key}" if verdict.limit_key else ""
    return Suspended(
        f"{LIMIT}{verdict.budget}",
        f"limit {verdict.budget} has no room{of_key}: {used:,.0f} of {limit:,.0f} tokens count",
        # Calls in flight may use less than was reserved for them: room may come sooner.
        delay_s=rng.uniform(0.8, 1.0) * min(max(verdict.wait_s or 0.0, LEAST_S), COME_BACK_S),
    )
