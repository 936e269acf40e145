"""What stands around every outside call of a job: its circuit breaker, and its budgets.

The pod gives both; calls of models and tools go through them wherever they are made.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Protocol, TypeVar
from uuid import UUID

import attrs

from cortex.domain.approval import ApprovalStatus
from cortex.domain.budget import Estimate
from cortex.domain.failure import Failure
from cortex.domain.job import Lease
from cortex.domain.model import Usage
from cortex.domain.prices import PriceTable
from cortex.domain.retry import CALL_RETRIES, CallRetry
from cortex.durable.progress import PartialAnswer


@attrs.frozen(kw_only=True)
class Caller:
    """Whose call it is: what its facts and its budgets are counted under."""

    lease: Lease
    lineage_id: UUID
    """The first job of its line: budgets per run count the whole line."""
    tenant: str
    agent_id: UUID | None
    agent_version: int | None
    config_id: int | None
    key: str
    """The step for which it is made."""
    prices: PriceTable
    """Those that the job began with."""
    call_s: float
    idle_s: float
    connect_s: float
    """Limits of one call, in seconds: in all, between two chunks, until there is a connection."""
    retry: CallRetry = CALL_RETRIES["default"]
    """How often the call is repeated inside its step."""
    answer: PartialAnswer = attrs.field(factory=PartialAnswer, repr=False)
    """Where what a model says is kept while it says it."""


class Admission(Protocol):
    """One call that may start."""

    def opened(self, *, idle_s: float) -> None:
        """The other side has begun to answer.

        An answer that goes on for `idle_s` without an error proves as much as a complete one.
        """

    async def succeeded(self) -> None:
        """The call came to its end. A failed report is only logged."""

    async def failed(self, failure: Failure) -> None:
        """The call failed. Raises `Suspended` if the breaker is open now."""


class CircuitBreakers(Protocol):
    """Circuit breakers by name, shared by all pods."""

    def admit(self, name: str) -> AbstractAsyncContextManager[Admission]:
        """Wait for leave to call; entering raises `Suspended` while the breaker is open.

        Leaving without a report (a cancelled call) counts as nothing and gives a probe back.
        """


@attrs.frozen(kw_only=True)
class Reservation:
    """Room taken in every budget that the call counts against, until it is settled."""

    id: UUID
    caller: Caller
    model: str
    estimate: Estimate


class BudgetGuard(Protocol):
    """Budgets and the record of costs."""

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        """Take room in every budget, or raise `Suspended` that names the spent one.

        Waits while other calls hold the room that is left.
        """

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
        """Give the room back, book what was really used, record it as a fact; all in one statement.

        `outcome`: kept, failed or cancelled. `took_s`: from the request to its last byte. To be
        called shielded; an outage is waited out within a bound, then the bill is kept and booked
        when the database is back.
        """


class Facts(Protocol):
    """Where failures that do not end an attempt are recorded."""

    async def failed(
        self,
        caller: Caller,
        failure: Failure,
        *,
        resolution: str,
        goes_on: bool = True,
        number: int | None = None,
    ) -> list[int]:
        """Record one failed call and what was done about it; return the id of the fact.

        `goes_on`: so does the attempt; a time-out then gets its receipt here, not at its end.
        `number`: of the call in its step, from 1. A failed write is only logged: no id.
        """
        ...

    async def resolved(self, caller: Caller, fact_ids: Sequence[int]) -> None:
        """Record that these failures were made good. A failed write is only logged."""


# --- What a pod measures of the calls that its jobs make; the pod gives the one that counts.


T = TypeVar("T")


class Meter(Protocol):
    """Takes what is to be measured, at once and without failing."""

    def model_called(
        self, model: str, *, outcome: str, seconds: float, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        """One call of a model is over. `outcome`: kept, failed or cancelled."""

    async def timed(self, tool: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()`, one call of a tool of the pod; return and raise what it does."""
        ...

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None:
        """A call of a tool of the pod is over. `outcome`: completed, failed or cancelled."""

    def effect_ended(self, tool: str, outcome: str) -> None:
        """An effect came to an end: an `EffectStatus` in small letters."""

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None:
        """A job has found what became of its request, so many seconds after it was made."""


class Unmetered:
    """Measures nothing."""

    def model_called(
        self, model: str, *, outcome: str, seconds: float, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        """See `Meter.model_called`."""

    async def timed(self, tool: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        """See `Meter.timed`."""
        return await call()

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None:
        """See `Meter.tool_called`."""

    def effect_ended(self, tool: str, outcome: str) -> None:
        """See `Meter.effect_ended`."""

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None:
        """See `Meter.approval_decided`."""
