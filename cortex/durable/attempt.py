"""What one attempt of a job is lent by its pod, as protocols and values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import attrs

from cortex.domain.effect import Invocation
from cortex.domain.job import EffectIntent, EffectReport, IntentReply
from cortex.durable.gates import Gate
from cortex.durable.journal import StepOutcome

if TYPE_CHECKING:
    from cortex.domain.approval import Decided
    from cortex.durable.context import Context
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cortex.domain.effect import Verdict

if TYPE_CHECKING:
    from cortex.durable.context import Context
import random

from cortex.domain.job import Claim
from cortex.domain.model import ModelRequest
from cortex.domain.prices import PriceTable
from cortex.durable.calls import Caller, CircuitBreakers, Facts, Meter, Unmetered


class EffectGateway(Protocol):
    """Where intents are entered and decisions are found; given by the pod."""

    @property
    def new_id(self) -> Callable[[], UUID]:
        """Makes ids."""

    async def until_it_may_begin(self, call_s: float) -> None:
        """Wait until the job is this pod's for as long as a call of so many seconds may take."""

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for leave to call. Raises `LeaseLost`."""

    async def record(self, operation: EffectReport) -> None:
        """Commit an outcome. Raises `LeaseLost`."""

    async def decision(self, lineage_id: UUID, key: str) -> "Decided | None":
        """Return the newest request of a line of jobs for a step, decided or not."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call of a tool as job code or a model asks for it."""

    tool: str
    arguments: Mapping[str, Any]
    key: str
    """Of its step."""
    gate_key: str
    """Of the step that is the decision about it."""
    said: str | None
    """What the model said with it."""
    folder: Path | None
    """Where the tool reads; None: the job's workspace."""
    timeout_s: float | None
    """In place of the tool's own."""


@attrs.frozen(kw_only=True)
class EffectTerms:
    """How a call with an outside result is repeated after a crash."""

    is_idempotent: bool
    reconcile: Callable[[Invocation], Awaitable[Verdict]] | None


@attrs.frozen(kw_only=True)
class ToolPlan:
    """A checked call."""

    arguments: Mapping[str, Any]
    """As it will run, defaults included: plain JSON."""
    effect: EffectTerms | None
    """None: it changes nothing outside."""
    gate: Gate | None
    """What must be asked of people first; None: nothing."""
    run: Callable[[Invocation | None], Awaitable[Any]]
    """Call the tool; return its result as plain JSON."""
    guard: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
    """Await something behind the tool's circuit breaker; a `NotDone` counts as its error."""
    limit_s: float
    """What one call may take."""


class Tools(Protocol):
    """Describes and calls tools by name; given by the pod."""

    @property
    def names(self) -> Sequence[str]:
        """The tools that the pod has."""

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools as a model is told: name, description, input_schema.

        Raises `Suspended` for one that the pod does not have: the job is another pod's to run.
        """

    def is_required(self, name: str) -> bool:
        """Whether the failure of this tool fails the step that called it."""

    async def plan(self, ctx: "Context", call: ToolCall) -> ToolPlan:
        """Check a call and say how it is to be made; nothing has run.

        Raises what is wrong with the call: the tool's name, its input.
        """


class Models(Protocol):
    """Answers model requests; given by the pod."""

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        """Return an outcome whose value is a `ModelResponse`, with usage and cost."""


class AgentSpecs(Protocol):
    """Finds the specification of an agent's version; given by the pod."""

    async def spec(self, agent_id: UUID, version: int) -> dict[str, Any]:
        """Return the specification as plain JSON."""


@attrs.frozen(kw_only=True)
class JobLimits:
    """What a job began with, as its calls are measured by it. Times are in seconds."""

    prices: PriceTable
    call_s: float
    """One model call in all."""
    idle_s: float
    """Between two pieces of its answer."""
    connect_s: float
    step_s: float
    """One step that has no limit of its own."""


class Policies(Protocol):
    """Finds what a job began with; given by the pod."""

    async def limits(self, claim: Claim) -> JobLimits:
        """Return the prices and the limits of the job's calls."""


@attrs.frozen(kw_only=True)
class Services:
    """What the pod lends to the contexts of its jobs."""

    models: Models
    tools: Tools
    agents: AgentSpecs
    policies: Policies
    breakers: CircuitBreakers
    facts: Facts
    desk: EffectGateway
    workspaces: Path
    """Folder that holds one folder for each job's files."""
    rng: random.Random
    meter: Meter = attrs.field(factory=Unmetered)
