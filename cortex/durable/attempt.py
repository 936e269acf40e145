"""One attempt of a job: its claim and its journal, and what its pod lends to it."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import attrs

from cortex.domain.approval import Decided
from cortex.domain.effect import Invocation, Verdict
from cortex.domain.job import Claim, EffectIntent, EffectReport, IntentReply
from cortex.domain.model import ModelRequest
from cortex.domain.prices import PriceTable
from cortex.durable.calls import Caller, CircuitBreakers, Facts, Meter, Unmetered
from cortex.durable.gates import Gate
from cortex.durable.journal import Journal, StepOutcome
from cortex.durable.progress import PartialAnswer


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

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:
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

    async def plan(self, attempt: "Attempt", call: ToolCall) -> ToolPlan:
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
    gateway: EffectGateway
    workspaces: Path
    """Folder that holds one folder for each job's files."""
    rng: random.Random
    meter: Meter = attrs.field(factory=Unmetered)


class Attempt:
    """What job code, its effects and its tools know of the attempt that they are part of."""

    def __init__(
        self,
        claim: Claim,
        journal: Journal,
        services: Services,
        *,
        final: tuple[type[Exception], ...] = (),
    ) -> None:
        """`final`: exceptions that no repetition mends."""
        self.claim = claim
        self.journal = journal
        self.services = services
        self.final = final
        self.known_limits: JobLimits | None = None
        """What `limits` returns, once it was asked."""

    @property
    def job_id(self) -> UUID:
        return self.claim.lease.job_id

    @property
    def number(self) -> int:
        """From 1; raised whenever the job is started again."""
        return self.claim.lease.attempt

    @property
    def lineage_id(self) -> UUID:
        """The first of the jobs that this one goes on from; itself, if it is the first."""
        return self.claim.lineage_id or self.claim.lease.job_id

    @property
    def agent(self) -> tuple[UUID, int] | None:
        """The agent and its version that the job runs, if it runs one."""
        claim = self.claim
        if claim.agent_id is None or claim.agent_version is None:
            return None
        return claim.agent_id, claim.agent_version

    @property
    def waits_count(self) -> int:
        """How often in a row the job was suspended without a step in between."""
        return self.claim.waits_count

    @property
    def workspace(self) -> Path:
        """Folder of the job's own files; may not exist yet, and not on another machine.

        A job that goes on from a failed one works in the folder of the first of them.
        """
        return self.services.workspaces / str(self.lineage_id)

    async def agent_spec(self) -> dict[str, Any] | None:
        """Return the specification of the agent version that the job was submitted with."""
        return None if self.agent is None else await self.services.agents.spec(*self.agent)

    async def limits(self) -> JobLimits:
        """Return what the job's calls are measured by: it keeps what it began with."""
        if self.known_limits is None:
            self.known_limits = await self.services.policies.limits(self.claim)
        return self.known_limits

    async def caller(self, key: str) -> Caller:
        """Return whose call it is that step `key` makes."""
        claim, limits = self.claim, await self.limits()
        step = self.journal.progress.under_way(key)
        return Caller(
            lease=claim.lease,
            lineage_id=self.lineage_id,
            tenant=claim.tenant,
            agent_id=claim.agent_id,
            agent_version=claim.agent_version,
            config_id=claim.config_id,
            key=key,
            prices=limits.prices,
            call_s=limits.call_s,
            idle_s=limits.idle_s,
            connect_s=limits.connect_s,
            answer=PartialAnswer() if step is None else step.answer,
        )
