"""Which other model answers when the one that was asked for cannot.

Tried: while the breaker of a model is open, after a refusal of the model itself, after one of its
API that has nothing to do with the request (credentials, an account, a model that is gone), and in
a pod without its key or package. Not for a mistake of the caller, such as an invalid request, and
not for a spent budget: those would be the same with any model.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final, Protocol

import attrs

from cortex.agent.models.errors import ModelNotSetUpError
from cortex.domain.classification import failure_of
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.failure import CODES, Failure
from cortex.domain.file import StoredFile
from cortex.domain.model import Block, Capabilities, ModelRequest, Substitution
from cortex.durable.calls import Caller, Facts
from cortex.durable.step_outcome import StepOutcome


class Ask(Protocol):
    """Asks one model."""

    async def __call__(self, request: ModelRequest, *, instead: str | None) -> StepOutcome: ...


BREAKER: Final = "llm:"
"""What a job waits for whose model is out of order begins so."""
BREAKER_OPEN: Final = "breaker_open"
REFUSAL: Final = "refusal"
"""Stop reason of an answer that the model, or a filter of its API, refused to give."""
REJECTIONS: Final = frozenset(
    {
        *("account_suspended", "authentication", "billing", "host_unknown", "not_found"),
        *("not_messages_api", "permission", "redirected", "refused"),
    }
)
"""Codes of rejections that are no mistake of the caller."""


def _breaker_failure(suspended: Suspended) -> Failure | None:
    """Return what kept a model from being asked; None if the job waits for something else."""
    if not suspended.waiting_on.startswith(BREAKER):
        return None
    cls = CODES[BREAKER_OPEN].cls
    return Failure(
        cls=cls, code=BREAKER_OPEN, message=suspended.reason, source=suspended.waiting_on
    )


def _refusal_failure(model: str) -> Failure:
    """Return the failure of a model that refused to answer."""
    code = "model_refused"
    message = f"model {model!r} refused to answer"
    return Failure(cls=CODES[code].cls, code=code, message=message, source=f"llm:{model}")


def check_fit(request: ModelRequest, capabilities: Capabilities) -> None:
    """Raise `UsageError` if the model cannot take what the request contains.

    Files that the record keeps are not looked at: see `files`, which describes them in results.
    """
    if capabilities.are_all:
        return
    blocks = (each for each in _blocks(request) if StoredFile.of(each) is None)
    kinds = {str(block.get("type")) for block in blocks}
    needs = {
        "tools": bool(request.tools or request.options.server_tools),
        "images": "image" in kinds,
        "documents": "document" in kinds,
    }
    lacks = [name for name, is_needed in needs.items() if is_needed]
    lacks = [name for name in lacks if not getattr(capabilities, name)]
    if request.output is not None and not (capabilities.output or capabilities.tools):
        raise UsageError(
            f"model {request.model!r} has no structured output, and takes no tools to give it by",
            hint="choose another model, or ask for the JSON in the prompt and read it yourself",
        )
    if lacks:
        raise UsageError(
            f"model {request.model!r} takes no {' and no '.join(lacks)}, which this request has",
            hint="choose another model, or correct `lacks` of its endpoint",
        )


class Substitutes:
    """One request to several models, one after another."""

    def __init__(self, ask: Ask, facts: Facts, request: ModelRequest, caller: Caller) -> None:
        self._ask = ask
        self._facts = facts
        self._request = request
        self._caller = caller
        self._models = (request.model, *request.fallback)
        self._raised: list[Suspended | Exception] = []
        self._refused: list[StepOutcome] = []
        """Answers that are refusals: paid for, and better than none."""
        self._unwritten: list[tuple[Failure, str]] = []
        """Open breakers. If one of the next models answers, the step itself says why it was asked:
        a fact for each call of an outage would only repeat the breaker's own."""
        self._fact_ids: list[int] = []
        self._reason = ""
        """Why the first model did not answer."""

    async def respond(self) -> StepOutcome:
        """Return the answer of the first model that gives one, or else the first refusal."""
        for model, instead in zip(self._models, (*self._models[1:], None), strict=True):
            outcome = await self._asked(model, instead)
            if outcome is not None:
                if self._fact_ids:
                    await self._facts.resolved(self._caller, self._fact_ids)
                return self._kept(outcome, model)
        if self._refused:
            return self._kept(self._refused.pop(0), self._request.model)
        raise self._error()

    async def _asked(self, model: str, instead: str | None) -> StepOutcome | None:
        """Ask a model; None if it cannot answer and another one may."""
        may_wait = self._request.batch and model == self._request.model
        request = attrs.evolve(self._request, model=model, fallback=(), batch=may_wait)
        failure: Failure | None
        try:
            outcome = await self._ask(request, instead=instead)
        except Suspended as suspended:
            failure = _breaker_failure(suspended)
            if failure is None:
                raise
            failure = suspended.failure or failure
            self._raised.append(suspended)
        except Exception as error:  # noqa: BLE001 -- raised at the end unless another one answers
            failure = self._failure(error, model)
            self._raised.append(error)
        else:
            if outcome.value["stop_reason"] != REFUSAL:
                return outcome
            failure = _refusal_failure(model)
            self._refused.append(outcome)
        await self._note(failure, instead)
        return None

    def _failure(self, error: Exception, model: str) -> Failure:
        """Return what went wrong with a model; raises the first one's error if it stands."""
        failure = attrs.evolve(failure_of(error), source=f"llm:{model}")
        if isinstance(error, ModelNotSetUpError):
            return attrs.evolve(failure, code="model_not_set_up")
        if model == self._request.model and failure.code not in REJECTIONS:
            raise error
        if isinstance(error, UsageError) or type(error) is RejectedError:
            failure = attrs.evolve(failure, code="unfit_fallback")
        return failure

    async def _note(self, failure: Failure, instead: str | None) -> None:
        """Record that a model cannot answer, and which one is asked in its place."""
        self._reason = self._reason or failure.message
        resolution = "no other model is left" if instead is None else f"{instead} is asked instead"
        self._unwritten.append((failure, resolution))
        if failure.code == BREAKER_OPEN and instead is not None:
            return
        for each, how in self._unwritten:
            self._fact_ids += await self._facts.failed(self._caller, each, resolution=how)
        self._unwritten.clear()

    def _error(self) -> Suspended | Exception:
        """Return what the job learns: it waits for a breaker or an outage to end, if one may."""
        for error in self._raised:
            if isinstance(error, Suspended):
                return error
        passing = [each for each in self._raised if failure_of(each).cls.is_transient]
        return (passing or self._raised)[0]

    def _kept(self, outcome: StepOutcome, model: str) -> StepOutcome:
        """Return an outcome with what the refusals before it cost, and with who answered."""
        usage, cost_usd = outcome.usage, outcome.cost_usd
        for each in self._refused:
            usage = each.usage if usage is None or each.usage is None else usage + each.usage
            known = (each.cost_usd or Decimal(0)) + (cost_usd or Decimal(0))
            cost_usd = None if cost_usd is None and each.cost_usd is None else known
        value = outcome.value
        if model != self._request.model:
            value = {
                **value,
                "substitution": Substitution(model=model, reason=self._reason).to_json(),
            }
        return StepOutcome(value=value, usage=usage, cost_usd=cost_usd)


def _blocks(request: ModelRequest) -> Iterator[Block]:
    """Yield the blocks of a request, those inside tool results included."""
    for message in request.messages:
        content = message["content"]
        for block in content if isinstance(content, list | tuple) else ():
            yield block
            inner = block.get("content") if block.get("type") == "tool_result" else None
            yield from inner if isinstance(inner, list) else ()
