"""What a pod measures of the calls that its jobs make; the pod gives the one that counts."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Protocol, TypeVar

from cortex.domain.approval import ApprovalStatus
from cortex.domain.usage import Usage

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
