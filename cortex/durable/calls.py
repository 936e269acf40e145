"""Protocols around every outside call of a job: circuit breakers, budgets, facts and metrics.

The pod implements them; calls of models and tools go through them everywhere.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Protocol, TypeVar
from uuid import UUID

import attrs
import trio

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.budget import Estimate
from cortex.domain.failure import Failure
from cortex.domain.job import Lease
from cortex.domain.prices import PriceTable
from cortex.domain.retry import CALL_RETRIES, CallRetry
from cortex.domain.usage import Usage
from cortex.durable.progress import PartialAnswer
from cortex.durable.tracing import AttemptTrace


@attrs.frozen(kw_only=True)
class Caller:
    """The owner of a call: its facts and its budgets are counted under it."""

    lease: Lease
    lineage_id: UUID
    """The first job of its lineage: budgets per run count the whole lineage."""
    tenant: str
    agent_id: UUID | None
    agent_version: int | None
    config_id: int | None
    key: str
    """The step that makes the call."""
    prices: PriceTable
    """Those that the job began with."""
    call_s: float
    idle_s: float
    connect_s: float
    """Limits of one call, in seconds: in all, between two chunks, until a connection."""
    retry: CallRetry = CALL_RETRIES["default"]
    """How often the call is repeated inside its step."""
    answer: PartialAnswer = attrs.field(factory=PartialAnswer, repr=False)
    """Keeps a model's answer while it arrives."""
    trace: AttemptTrace | None = attrs.field(default=None, repr=False)
    """Records the spans of its calls."""


class Admission(Protocol):
    """One call that may start."""

    def opened(self, *, idle_s: float) -> None:
        """The other side has begun to answer.

        An answer that goes on for `idle_s` without an error proves as much as a complete one.
        """

    async def succeeded(self) -> None:
        """The call has succeeded. A report that fails is only logged."""

    async def failed(self, failure: Failure) -> None:
        """The call has failed. Raises `Suspended` if the breaker is open now."""


class CircuitBreakers(Protocol):
    """Circuit breakers by name, shared by all pods."""

    def admit(self, name: str) -> AbstractAsyncContextManager[Admission]:
        """Wait until a call may begin; entering raises `Suspended` while the breaker is open.

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
    """Reserves budget room before calls and books their costs."""

    async def reserve(self, caller: Caller, *, model: str, estimate: Estimate) -> Reservation:
        """Take room in every budget; raise `Suspended` with the name of a spent one.

        Waits while other calls hold the remaining room.
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
        """Release the room, book the real usage and record it as a fact, all in one statement.

        `outcome`: kept, failed or cancelled. `took_s`: from the request to its last byte. Call this
        shielded; an outage is waited out within a bound, then the bill is kept and booked when the
        database is back.
        """


class Facts(Protocol):
    """Records failures that do not end an attempt."""

    async def failed(
        self,
        caller: Caller,
        failure: Failure,
        *,
        resolution: str,
        goes_on: bool = True,
        number: int | None = None,
    ) -> list[int]:
        """Record one failed call and the reaction to it; return the id of the fact.

        `goes_on`: the attempt goes on; a time-out then gets its receipt here, not at the attempt's
        end. `number`: of the call in its step, from 1. A failed write is only logged: no id.
        """
        ...

    async def resolved(self, caller: Caller, fact_ids: Sequence[int]) -> None:
        """Record that these failures were made good. A failed write is only logged."""


# --- Metrics of the calls that jobs make; the pod provides the meter that counts.


T = TypeVar("T")


class Meter(Protocol):
    """Takes measurements, at once and without failing."""

    def model_called(
        self, model: str, *, outcome: str, seconds: float, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        """One model call is over. `outcome`: kept, failed or cancelled."""

    async def timed(self, tool: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()`, one call of a tool of the pod; pass on its result or error."""
        ...

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None:
        """A call of a tool of the pod is over. `outcome`: completed, failed or cancelled."""

    def effect_ended(self, tool: str, outcome: str) -> None:
        """An effect has ended: an `EffectStatus` in lower case."""

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None:
        """A job has found the decision about its request, `waited_s` seconds after it was made."""


class Unmetered:
    """Measures nothing; what inherits from it counts what it overrides."""

    def model_called(
        self, model: str, *, outcome: str, seconds: float, usage: Usage, cost_usd: Decimal | None
    ) -> None: ...

    async def timed(self, tool: str, call: Callable[[], Awaitable[T]]) -> T:
        began, outcome = trio.current_time(), "cancelled"
        try:
            result = await call()
            outcome = "completed"
            return result
        except Exception:
            outcome = "failed"
            raise
        finally:
            self.tool_called(tool, outcome, seconds=trio.current_time() - began)

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None: ...

    def effect_ended(self, tool: str, outcome: str) -> None: ...

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None: ...
