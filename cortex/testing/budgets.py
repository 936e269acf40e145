"""Shares of children in memory: the calls of a job stop when what it was given is spent."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from uuid import UUID

import attrs
import trio

from cortex.domain.budget import (
    WAITING_PREFIX,
    Budget,
    Estimate,
    Period,
    Scope,
    Unit,
    refused_share,
    spent_words,
    unpriced,
)
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import Failure
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation

Call = tuple[UUID, str]
"""A job, and its step: a call that is made again after a crash is booked once."""


@attrs.define(eq=False)
class MemoryShare:
    """What one child may spend in one unit, and what it and those below it have spent."""

    job_id: UUID
    unit: Unit
    limit: Decimal
    _spent: dict[Call, Decimal] = attrs.field(factory=dict)
    _reserved: dict[Call, Decimal] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        subject = str(self.job_id)
        return Budget(scope=Scope.JOB, subject=subject, unit=self.unit, period=Period.RUN).name

    def has_room(self, call: Call, model: str, estimate: Estimate) -> bool:
        """Return whether a call may begin now, as `cortex.reserve` decides it.

        Raises `Suspended` if it is spent, and `RejectedError` if the model has no known price.
        """
        most = self._most(estimate)
        if most is None:
            raise unpriced(model, self.name)
        spent = sum((used for each, used in self._spent.items() if each != call), Decimal(0))
        if spent >= self.limit:
            words = spent_words(self.name, spent, self.limit, self.unit)
            raise Suspended(f"{WAITING_PREFIX}{self.name}", words, delay_s=None)
        held = sum(self._reserved.values(), Decimal(0))
        return not held or spent + held + most <= self.limit

    def hold(self, call: Call, estimate: Estimate) -> None:
        """Keep room for a call."""
        self._reserved[call] = self._most(estimate) or Decimal(0)

    def _most(self, estimate: Estimate) -> Decimal | None:
        return estimate.cost_usd if self.unit is Unit.USD else Decimal(estimate.tokens)

    def book(self, call: Call, usage: Usage, cost_usd: Decimal | None) -> None:
        """Book what a call has used, and return its room."""
        self._reserved.pop(call, None)
        used = cost_usd if self.unit is Unit.USD else usage.total_tokens
        self._spent[call] = Decimal(used or 0)


@attrs.define
class MemoryBudgets:
    """Implements `cortex.durable.calls.BudgetGuard` for one job: its share, and those above it."""

    shares: tuple[MemoryShare, ...] = ()
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        call = (caller.lease.job_id, caller.key)
        # Asks each of them: one that is spent counts more than one whose room is held.
        while False in [each.has_room(call, model, estimate) for each in self.shares]:
            await self._changed.wait()
        for each in self.shares:
            each.hold(call, estimate)
        return Reservation(id=caller.lease.job_id, caller=caller, model=model, estimate=estimate)

    async def settle(
        self,
        reservation: Reservation,
        *,
        usage: Usage,
        cost_usd: Decimal | None,
        outcome: str,  # noqa: ARG002
        took_s: float,  # noqa: ARG002
        failure: Failure | None = None,  # noqa: ARG002
    ) -> None:
        caller = reservation.caller
        for each in self.shares:
            each.book((caller.lease.job_id, caller.key), usage, cost_usd)
        self._changed.set()
        self._changed = trio.Event()


def given_shares(
    step: str, child_id: UUID, budget: Mapping[str, Decimal], above: Iterable[MemoryShare]
) -> tuple[MemoryShare, ...]:
    """Return the shares of a child. Raises `RejectedError` for more than those above it have."""
    shares = tuple(MemoryShare(child_id, Unit(unit), limit) for unit, limit in budget.items())
    for share in shares:
        for each in above:
            if each.unit is share.unit and share.limit > each.limit:
                raise refused_share(step, share.limit, each.name, each.limit, each.unit)
    return shares
