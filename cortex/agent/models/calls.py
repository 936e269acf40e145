"""A model call with everything around it: breaker, budget, retries inside its step, its cost.

One place decides about retries inside a step; failures beyond that go to the job's own layers.
"""

import random
from decimal import Decimal
from functools import partial
from typing import Final

import attrs
import trio

from cortex.agent.models.batched import BatchedCalls, Batches
from cortex.agent.models.client import CallLimits, ModelClient
from cortex.agent.models.errors import ModelRejectedError, ModelUnavailableError
from cortex.agent.models.fallback import Substitutes, check_fit
from cortex.agent.models.files import PromptFiles
from cortex.agent.models.output_tool import OutputTool, is_for
from cortex.domain.budget import estimate_of, usage_of_uncounted
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import CLIENT_NOT_LOADED, UNREADABLE, Failure, FailureClass
from cortex.domain.file import stored_in
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.redaction import clean_text
from cortex.domain.usage import Usage
from cortex.durable.calls import (
    Admission,
    BudgetGuard,
    Caller,
    CircuitBreakers,
    Facts,
    Meter,
    Reservation,
    Unmetered,
)
from cortex.durable.repeating import repeated
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.tracing import Value

UNREADABLE_MAX: Final = 2
"""Each of them is paid for, and a server that speaks another protocol never stops."""
SETTLE_BOUND_S: Final = 15.0
"""A cancelled call is booked before its job ends, or later if this is too short."""


@attrs.frozen(kw_only=True)
class ModelCalls:
    """Answers model requests, with usage and cost."""

    client: ModelClient
    breakers: CircuitBreakers
    budget_guard: BudgetGuard
    facts: Facts
    rng: random.Random
    meter: Meter = attrs.field(factory=Unmetered)
    files: PromptFiles = attrs.field(factory=PromptFiles)
    batches: Batches | None = None
    """None: calls that may wait in a batch are made at once."""

    async def capabilities(self, model: str) -> Capabilities:
        return self.client.capabilities(model)

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        """Return the response as plain JSON, with usage, and cost if the price is known.

        The models of `fallback` are asked in the place of one that cannot answer: see `fallback`.
        Raises `Suspended` while the model's breaker is open or a budget is spent, else the client's
        error once the retries inside the step are used up. After two answers that cannot be read
        the server counts as one that speaks another protocol: `ModelRejectedError`. A model that
        cannot take what the request contains is a `UsageError`.
        """
        ask = partial(self._respond, caller=caller)
        if not request.fallback:
            return await ask(request, instead=None)
        return await Substitutes(ask, self.facts, request, caller).respond()

    async def _respond(
        self, request: ModelRequest, *, caller: Caller, instead: str | None
    ) -> StepOutcome:
        """Ask one model. `instead`: the one that is asked if this one is out of order."""
        check_fit(request, self.client.capabilities(request.model))
        if request.batch:
            answer = await self._batched(request, caller)
            if answer is not None:
                return answer
            request = attrs.evolve(request, batch=False)
        unreadable = 0

        async def once() -> StepOutcome:
            nonlocal unreadable
            try:
                return await self._once(request, caller, instead)
            except ModelUnavailableError as error:
                unreadable += failure_of(error).code in UNREADABLE
                if unreadable < UNREADABLE_MAX:
                    raise
                raise _foreign(error) from error

        return await repeated(
            once,
            caller=caller,
            facts=self.facts,
            rng=self.rng,
        )

    async def _batched(self, request: ModelRequest, caller: Caller) -> StepOutcome | None:
        """Return the answer of a batch; None: the call is to be made directly."""
        if self.batches is None:
            return None
        tool = self._output_tool(request)
        calls = BatchedCalls(
            batches=self.batches,
            budget_guard=self.budget_guard,
            facts=self.facts,
            meter=self.meter,
            capable=lambda model: self.client.capabilities(model).batches,
        )
        outcome = await calls.respond(request if tool is None else tool.request, caller)
        if outcome is None or tool is None:
            return outcome
        response = tool.restore(ModelResponse.from_json(outcome.value))
        return attrs.evolve(outcome, value=response.to_json())

    async def _once(
        self, request: ModelRequest, caller: Caller, instead: str | None
    ) -> StepOutcome:
        if not any(True for _ in stored_in(request.messages)):
            return await self._admitted(request, caller, instead)
        capabilities = self.client.capabilities(request.model)
        async with self.files.put_in(request, caller, capabilities) as filled:
            return await self._admitted(request, caller, instead, filled)

    async def _admitted(
        self,
        request: ModelRequest,
        caller: Caller,
        instead: str | None,
        filled: ModelRequest | None = None,
    ) -> StepOutcome:
        """Make the call if breaker and budgets permit; `filled`: with the contents of files."""
        async with self.breakers.admit(f"llm:{request.model}") as admission:
            estimate = estimate_of(request, caller.prices)
            reservation = await self.budget_guard.reserve(
                caller, model=request.model, estimate=estimate
            )
            return await self._booked(
                filled or request, caller, reservation, admission, instead=instead
            )

    async def _booked(
        self,
        request: ModelRequest,
        caller: Caller,
        reservation: Reservation,
        admission: Admission,
        *,
        instead: str | None,
    ) -> StepOutcome:
        """Make the call and book it, whatever its outcome."""
        call = _ModelCall(
            self.budget_guard,
            reservation,
            request,
            self.meter,
            provider=self.client.provider_of(request.model),
        )
        tool = self._output_tool(request)
        try:
            response = await self.client.respond(
                request if tool is None else tool.request,
                limits=_limits(caller),
                on_text=caller.answer.begin(),
                on_open=partial(admission.opened, idle_s=caller.idle_s),
                on_usage=call.used,
            )
        except Exception as error:
            _name_call(error, reservation)
            failure = attrs.evolve(failure_of(error), source=f"llm:{request.model}")
            await call.settle("failed", failure)  # noqa: ASYNC120 -- a cancellation wins
            await self._report(failure, caller, admission, instead)  # noqa: ASYNC120 -- a cancellation wins
            raise
        except BaseException:
            await call.settle("cancelled")  # noqa: ASYNC102 -- it shields itself, with a bound
            raise
        if tool is not None:
            response = tool.restore(response)
        if not response.usage.total_tokens:
            usage = usage_of_uncounted(response.content, reservation.estimate)
            response = attrs.evolve(response, usage=usage)
        call.used(response.usage)
        call.response = response
        await call.settle("kept")
        await admission.succeeded()
        return _outcome(response, call)

    def _output_tool(self, request: ModelRequest) -> OutputTool | None:
        """Return the tool for an output that the model has no mode for."""
        output = request.output
        if output is None or not is_for(output, self.client.capabilities(request.model)):
            return None
        return OutputTool.of(request, output)

    async def _report(
        self, failure: Failure, caller: Caller, admission: Admission, instead: str | None
    ) -> None:
        """Report the failure to the breaker; if that opens it, record the failure as a fact."""
        if failure.code in UNREADABLE or failure.code == CLIENT_NOT_LOADED:
            # Judged here, not by the breaker: the job must not wait, and other pods may go on.
            failure = attrs.evolve(failure, cls=FailureClass.PERMANENT)
        try:
            await admission.failed(failure)
        except Suspended as suspended:
            if instead is not None:
                suspended.failure = suspended.failure or failure
                raise
            resolution = f"the job waits for {suspended.waiting_on}"
            note = partial(self.facts.failed, caller, failure, resolution=resolution)
            await note(goes_on=False)  # noqa: ASYNC120 -- a cancellation wins
            raise


class _ModelCall:
    """One call and its usage so far."""

    def __init__(
        self,
        budget_guard: BudgetGuard,
        reservation: Reservation,
        request: ModelRequest,
        meter: Meter,
        *,
        provider: str,
    ) -> None:
        self._budget_guard = budget_guard
        self._reservation = reservation
        self._request = request
        self._model = request.model
        self._meter = meter
        self._provider = provider
        self._began = trio.current_time()
        self.usage = Usage()
        self.response: ModelResponse | None = None
        """Once it is complete."""

    def used(self, usage: Usage) -> None:
        self.usage = usage

    @property
    def cost_usd(self) -> Decimal | None:
        return self._reservation.caller.prices.cost(self._model, self.usage)

    async def settle(self, outcome: str, failure: Failure | None = None) -> None:
        took_s = trio.current_time() - self._began
        self._meter.model_called(
            self._model,
            outcome=outcome,
            seconds=took_s,
            usage=self.usage,
            cost_usd=self.cost_usd,
        )
        self._trace(outcome, failure)
        settle = partial(
            self._budget_guard.settle,
            self._reservation,
            usage=self.usage,
            cost_usd=self.cost_usd,
            outcome=outcome,
            took_s=took_s,
            failure=failure,
        )
        with trio.move_on_after(SETTLE_BOUND_S, shield=True):
            await settle()

    def _trace(self, outcome: str, failure: Failure | None) -> None:
        """Leave a span as the semantic conventions for generative AI describe it."""
        caller, usage = self._reservation.caller, self.usage
        if caller.trace is None:
            return
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self._model,
            "gen_ai.request.max_tokens": self._request.max_tokens,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "cortex.outcome": outcome,
        }
        if self.cost_usd is not None:
            attributes["cortex.cost_usd"] = float(self.cost_usd)
        if self.response is not None:
            attributes |= {
                "gen_ai.response.model": self.response.model,
                "gen_ai.response.id": self.response.message_id,
                "gen_ai.response.finish_reasons": (self.response.stop_reason,),
            }
        if failure is not None:
            attributes["error.type"] = failure.code
        message = None if failure is None else clean_text(failure.message)
        name = f"chat {self._model}"
        caller.trace.called(caller.key, name, self._began, attributes, error=message)


def _foreign(error: ModelUnavailableError) -> ModelRejectedError:
    """Return the error for a server whose answers cannot be read."""
    facts = attrs.evolve(error.failure, type="not_messages_api", status=None)
    return ModelRejectedError(
        facts,
        f"the server does not speak {facts.protocol}: {UNREADABLE_MAX} answers could not be "
        f"read, the last one because of {error.failure.type}",
        hint=f"check {facts.address}: it must be the address of {facts.protocol}",
    )


def _name_call(error: Exception, reservation: Reservation) -> None:
    """Let every fact of this error name the call, as its cost does."""
    if isinstance(error, (ModelUnavailableError, ModelRejectedError)):
        error.failure = attrs.evolve(error.failure, call_id=str(reservation.id))


def _limits(caller: Caller) -> CallLimits:
    return CallLimits(total_s=caller.call_s, idle_s=caller.idle_s, connect_s=caller.connect_s)


def _outcome(response: ModelResponse, call: _ModelCall) -> StepOutcome:
    return StepOutcome(value=response.to_json(), usage=call.usage, cost_usd=call.cost_usd)
