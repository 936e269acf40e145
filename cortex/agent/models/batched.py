"""Model calls that wait in a batch, as the job sees them: added once, then found again.

The job is suspended meanwhile. A runner sends the calls, see `cortex.runtime.maintenance.batches`.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Protocol

import attrs
import orjson

from cortex.domain.budget import estimate_of
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.failure import CODES, Failure
from cortex.domain.file import stored_in
from cortex.domain.model import CacheTtl, ModelOptions, ModelRequest, OutputFormat
from cortex.domain.redaction import secret_in
from cortex.domain.usage import Usage
from cortex.domain.waiting import BATCH
from cortex.durable.calls import BudgetGuard, Caller, Facts, Meter, Reservation
from cortex.durable.codec import decode, input_of
from cortex.durable.step_outcome import StepOutcome

BYTES_MAX: Final = 30_000_000
"""Of one request, its files included: a larger one is made directly."""
COME_BACK_S: Final = 26 * 3_600.0
"""A batch is over after a day: then the runner wakes the job. This is for a runner that is gone."""
FAILED: Final = "batch_failed"


@attrs.frozen(kw_only=True)
class BatchedCall:
    """A call that an attempt of the job has added, or one before."""

    answer: str | None = None
    """The response as JSON text."""
    usage: Usage | None = None
    cost_usd: Decimal | None = None
    failure: str | None = None
    """Why it has to be made directly."""
    took_s: float | None = None
    """From its addition to its result; None: there is none yet."""


class Batches(Protocol):
    """Keeps the calls of jobs that wait for batches; given by the pod."""

    async def find(self, caller: Caller, digest: bytes) -> BatchedCall | None:
        """Return the call that the caller's step has added with this request."""
        ...

    async def add(
        self, reservation: Reservation, *, digest: bytes, request: str, size: int
    ) -> bool:
        """Have a call wait for a batch, with its room; False: the attempt is over."""
        ...


@attrs.frozen(kw_only=True)
class BatchedCalls:
    """Makes model calls in batches."""

    batches: Batches
    budget_guard: BudgetGuard
    facts: Facts
    meter: Meter
    capable: Callable[[str], bool]
    """Returns whether the calls of a model can wait in batches."""

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome | None:
        """Return the answer to a call; None: it is to be made directly, as a fact says.

        Raises `Suspended` until a batch has brought the answer, or while a budget is spent.
        """
        if not self.capable(request.model):
            return None
        digest = input_of(request.to_json(), what="a model call").digest
        known = await self.batches.find(caller, digest)
        if known is None:
            refusal = await self._add(request, caller, digest)
            if refusal is None:
                raise _waiting(request)
            await self._go_on(refusal, request, caller)
            return None
        if known.took_s is None:
            raise _waiting(request)
        if known.answer is None:
            await self._go_on(known.failure or "it has no answer", request, caller)
            return None
        usage = known.usage or Usage()
        self.meter.model_called(
            request.model,
            outcome="kept",
            seconds=known.took_s,
            usage=usage,
            cost_usd=known.cost_usd,
        )
        return StepOutcome(value=decode(known.answer), usage=usage, cost_usd=known.cost_usd)

    async def _add(self, request: ModelRequest, caller: Caller, digest: bytes) -> str | None:
        """Add a call; return why it cannot wait in a batch."""
        text = kept_text(request)
        size = len(text) + sum(each.base64_bytes for each in stored_in(request.messages))
        if size > BYTES_MAX:
            return f"the request has {size:,} bytes, at most {BYTES_MAX:,} wait in a batch"
        if (secret := secret_in(text)) is not None:
            return f"the request contains secret {secret!r}, which the record does not keep"
        estimate = estimate_of(request, caller.prices)
        reservation = await self.budget_guard.reserve(
            caller, model=request.model, estimate=estimate
        )
        if not await self.batches.add(reservation, digest=digest, request=text, size=size):
            await self.budget_guard.settle(
                reservation, usage=Usage(), cost_usd=Decimal(0), outcome="cancelled", took_s=0.0
            )
            raise LeaseLost(f"job {caller.lease.job_id} is owned by another attempt")
        return None

    async def _go_on(self, why: str, request: ModelRequest, caller: Caller) -> None:
        """Record that a call is made directly."""
        failure = Failure(
            cls=CODES[FAILED].cls,
            code=FAILED,
            message=f"model call {caller.key!r} is made without a batch: {why}",
            source=f"llm:{request.model}",
        )
        await self.facts.failed(caller, failure, resolution="the call is made directly")


def kept_text(request: ModelRequest) -> str:
    """Return a request as JSON for a call that is made later: the inverse of `of_kept`."""
    return orjson.dumps({**request.to_json(), "cache": request.cache.value}).decode()


def of_kept(text: str) -> ModelRequest:
    plain: dict[str, Any] = orjson.loads(text)
    options: dict[str, Any] = plain.get("options", {})
    for name in ("stop_sequences", "server_tools"):
        options[name] = tuple(options.get(name, ()))
    output = plain.get("output")
    return ModelRequest(
        model=plain["model"],
        messages=tuple(plain["messages"]),
        max_tokens=plain["max_tokens"],
        system=plain.get("system", ""),
        tools=tuple(plain.get("tools", ())),
        options=ModelOptions(**options),
        output=None if output is None else OutputFormat(**output),
        cache=CacheTtl(plain["cache"]),
    )


def _waiting(request: ModelRequest) -> Suspended:
    return Suspended(BATCH, f"a call of {request.model} waits in a batch", delay_s=COME_BACK_S)
