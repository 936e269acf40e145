"""One attempt of a job: its claim, its journal, and the services that its pod provides."""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import attrs
import trio

from cortex.domain.approvals.approval import Decided
from cortex.domain.bulk import BulkChoice, BulkOrder, BulkRequest, BulkSlice
from cortex.domain.callbacks import Callback
from cortex.domain.child import AdoptVerdict, ChildOutcome, ChildTerms, SpawnReply
from cortex.domain.effect import Invocation, Verdict
from cortex.domain.failure import Failure
from cortex.domain.file import StoredFile
from cortex.domain.job import Claim, EffectIntent, EffectReport, IntentReply
from cortex.domain.known_tool import KnownTool
from cortex.domain.log_line import JobLog
from cortex.domain.messages.message import Message
from cortex.domain.model import Capabilities, ModelRequest
from cortex.domain.prices import PriceTable
from cortex.domain.signals import ReceivedSignal
from cortex.domain.timeouts import check_step_timeout
from cortex.domain.waits import Wait
from cortex.durable.calls import Caller, CircuitBreakers, Facts, Meter, Unmetered
from cortex.durable.contenders import Contender
from cortex.durable.gates import Gate
from cortex.durable.journal import Journal
from cortex.durable.progress import PartialAnswer
from cortex.durable.published import Published, Publisher
from cortex.durable.resources import Resources
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.timers import DatabaseClock
from cortex.durable.tracing import Tracing, Untraced


class EffectGateway(Protocol):
    """Records intents and finds decisions; given by the pod."""

    @property
    def new_id(self) -> Callable[[], UUID]: ...

    async def until_it_may_begin(self, call_s: float) -> None:
        """Wait until the pod surely owns the job for a call of up to `call_s` seconds."""

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for permission to call. Raises `LeaseLost`."""

    async def record(self, operation: EffectReport) -> None: ...

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:
        """Return the newest approval request for a step in a job's lineage, decided or not."""


@attrs.frozen(kw_only=True)
class ToolCall:
    """A tool call as requested by job code or a model."""

    tool: str
    arguments: Mapping[str, Any]
    key: str
    """The key of its step."""
    gate_key: str
    """The key of the step that records the decision about it."""
    said: str | None
    """The model's text beside the call."""
    folder: Path | None
    """The folder where the tool reads; None: the job's workspace."""
    timeout_s: float | None
    """Replaces the tool's own limit."""
    computed: frozenset[str] | None = None
    """Names of the arguments that the job itself computed, if the others are older than this code:
    where those do not fit the tool, other code may take the call. None: all may be computed."""
    defined: Mapping[str, Any] | None = None
    """What its MCP server has said about the tool, as the job has recorded it."""
    answers: Mapping[str, Any] = attrs.field(factory=dict)
    """Of people, to what its MCP server has asked before, by the question's digest."""


@attrs.frozen(kw_only=True)
class EffectTerms:
    """How a call with an outside result is repeated after a crash."""

    is_idempotent: bool
    reconcile: Callable[[Invocation], Awaitable[Verdict]] | None


@attrs.frozen(kw_only=True)
class ToolPlan:
    """A checked call."""

    arguments: Mapping[str, Any]
    """The arguments of the call, defaults included: plain JSON."""
    effect: EffectTerms | None
    """None: the call changes nothing outside."""
    gate: Gate | None
    """The question for people before the call; None: no question."""
    run: Callable[[Invocation | None], Awaitable[Any]]
    """Call the tool; return its result as plain JSON."""
    guard: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
    """Await something behind the tool's circuit breaker; a `NotDone` counts as its error."""
    limit_s: float
    """The most seconds that one call may take."""


Planner = Callable[["Attempt", ToolCall], Awaitable[ToolPlan]]
"""Checks a call and plans it without running anything."""


class Tools(Protocol):
    """Describes and calls tools by name; given by the pod."""

    @property
    def names(self) -> Sequence[str]: ...

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Describe these tools for a model: name, description, input_schema.

        Raises `Suspended` for one that the pod does not have: another pod must run the job.
        """

    def misfit(self, name: str, arguments: Mapping[str, Any] | None) -> str | None:
        """Return why other code must make a call that is older than this pod's; None: it can.

        `arguments`: None if they are not known whole.
        """

    def asks(self, name: str) -> bool:
        """Return whether people are asked before its calls, unless an agent's rule permits them."""

    def lasts_over(self, name: str, seconds: float) -> bool:
        """Return whether its own time-out lets each of its calls run for longer than that."""

    def is_required(self, name: str) -> bool:
        """Return whether a failure of this tool fails the step that called it."""

    async def plan(self, attempt: "Attempt", call: ToolCall) -> ToolPlan:
        """Check a call and plan it without running anything.

        Raises an error for an unknown tool or invalid input.
        """

    async def listed(
        self, attempt: "Attempt", *, step: str, folder: Path | None
    ) -> list[dict[str, Any]]:
        """Ask the MCP servers of the job's agent for their tools; return these as plain JSON.

        `step` asks; `folder`: where servers work that the agent lets into the job's folder.
        """

    async def keep(self, workspace: Path, name: str, text: str) -> str | None:
        """Keep a text in a file of a workspace; return its path there, None if it cannot be kept.

        The same text has the same file, which may exist already.
        """

    async def close(self) -> None:
        """End what calls have left running: bounded, also when it is cancelled."""


class Models(Protocol):
    """Answers model requests; given by the pod."""

    async def capabilities(self, model: str) -> Capabilities:
        """Return what a model can take, as far as this pod knows.

        Another pod may say something else: what a job makes of it belongs to its record.
        """

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        """Return an outcome whose value is a `ModelResponse`, with usage and cost."""


class Files(Protocol):
    """Keeps images and PDF files beside the record; given by the pod."""

    async def keep(self, lineage_id: UUID, file: StoredFile, content: bytes) -> None:
        """Keep a file of a lineage of jobs; one that is there stays.

        Raises `RejectedError` if the job has too many.
        """


class Specs(Protocol):
    """Finds specifications of agents and flows as plain JSON; given by the pod.

    Raises `NotFoundError`.
    """

    async def newest_agent(self, name: str) -> tuple[UUID, int]:
        """Return an agent's id and newest version."""

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]: ...
    async def flow(self, name: str, version: int) -> dict[str, Any]: ...

    async def known_tools(self, agent: str, server: str, identity: str) -> list[KnownTool]:
        """Return what is on record about the tools of an MCP server; none before its first use."""

    async def note_tools(
        self, agent: str, server: str, identity: str, *, tools: dict[str, str], named: list[str]
    ) -> list[KnownTool]:
        """Record what a server says about its tools, texts by name; return what is on record.

        On its first use all are accepted, later only new ones that are `named`.
        """


@attrs.frozen(kw_only=True)
class JobLimits:
    """Prices and limits that a job began with. Times are in seconds."""

    prices: PriceTable
    call_s: float
    """One model call in all."""
    idle_s: float
    """Between two pieces of a model's answer."""
    connect_s: float
    step_s: float
    """One step without a limit of its own."""


class Policies(Protocol):
    """Finds the limits that a job began with; given by the pod."""

    def known_limits(self, claim: Claim) -> JobLimits | None:
        """Return the limits if that takes no database."""

    async def limits(self, claim: Claim) -> JobLimits: ...


class BulkOperations(Protocol):
    """Chooses and changes many jobs or dead letters; given by the pod."""

    async def choose(self, job_id: UUID, request: BulkRequest) -> BulkChoice:
        """Fix the ids that a job of type `bulk` will change, in its submitter's name."""

    async def settle(self, order: BulkOrder, job_ids: Sequence[UUID]) -> BulkSlice:
        """Change the first of these in one transaction: all, or fewer if that is too much at once.

        Safe to repeat. Raises `Suspended` while the first one is locked.
        """


@attrs.frozen(kw_only=True)
class UpkeepResult:
    """What one run of a runner did."""

    items: int
    is_skipped: bool
    """Another process was doing it, or had done it lately."""


class Upkeep(Protocol):
    """The background work that a pod does for all pods."""

    async def run_once(self, name: str, /) -> UpkeepResult:
        """Run a runner once, as its loop does."""


@attrs.frozen(kw_only=True)
class ApprovalReminder:
    """Who was reminded of a request for approval."""

    approval: str
    status: str
    notified: list[str]
    """Subscriptions."""


class Signals(Protocol):
    """Events from outside for the steps of jobs; given by the pod."""

    async def take(
        self, claim: Claim, *, step: str, name: str, key: str | None
    ) -> ReceivedSignal | None:
        """Give a step the first signal of a name that no step has; None: there is none.

        Asking again for the same step returns the same one. `key`: of those sent to this key, not
        to the job. Raises `LeaseLost`.
        """


class Arrivals(Protocol):
    """Notices what comes for a job that runs; given by the pod."""

    async def come(self, claim: Claim, waits: Sequence[Wait]) -> None:
        """Return once the job may have one of these. What comes may be missed."""


class NoArrivals:
    """Notices nothing."""

    async def come(self, claim: Claim, waits: Sequence[Wait]) -> None:  # noqa: ARG002
        await trio.sleep_forever()


class Channels(Protocol):
    """The subscriptions by which people are notified; given by the pod."""

    async def routes(self, topic: str, *, tenant: str, payload: dict[str, Any]) -> list[str]:
        """Return the subscriptions that a message like this one matches."""

    async def send(self, name: str, message: Message, *, limit_s: float) -> Failure | None:
        """Send a message by one of them, once; return why that failed."""

    async def origin(self, job_id: UUID) -> str | None:
        """Return the job that submitted this one; None: a person or a program did."""

    async def remind(self, approval: str, *, message_id: UUID) -> ApprovalReminder:
        """Remind of a request that still waits; the same id does so once.

        Raises `NotFoundError`.
        """

    async def notify(
        self, claim: Claim, payload: str, *, job_id: UUID, traceparent: str | None
    ) -> None:
        """Submit a job `send_notification` of the same tenant; the same id does so once.

        `payload`: its arguments, JSON text.
        """


class Callbacks(Protocol):
    """Opens callback URLs; given by the pod."""

    async def open(
        self, claim: Claim, *, key: str, name: str, expires_s: float, schema: str | None
    ) -> Callback:
        """Open the callback of a step; again: the same one, which then expires later.

        `schema`: of the bodies that it takes, JSON text. Raises `UsageError` that names a missing
        setting, and `LeaseLost`.
        """

    async def url(self, claim: Claim, callback: Callback) -> str:
        """Return the whole URL of a callback of the job's lineage. Raises `UsageError`."""


class Children(Protocol):
    """Submits the children of jobs and reads how they ended; given by the pod."""

    async def spawn(
        self,
        claim: Claim,
        *,
        step: str,
        first: int,
        payloads: Sequence[str],
        terms: ChildTerms,
        let_go: int | None,
    ) -> SpawnReply:
        """Submit children of a step from an ordinal on, unless an earlier attempt has.

        `let_go`: how many of the step may run at once, once all are there; None: more follow.
        """

    async def outcomes(
        self, claim: Claim, *, step: str, first: int, limit: int
    ) -> list[ChildOutcome]:
        """Return how children ended, from an ordinal on, up to the first that has not."""

    async def adopt(self, claim: Claim, *, step: str, first: int, let_go: int) -> AdoptVerdict:
        """Take on what an earlier job of the lineage left at a step."""

    async def ids(self, claim: Claim, *, step: str, first: int, limit: int) -> list[UUID]:
        """Return the children of a step, from an ordinal on."""


@attrs.frozen(kw_only=True)
class Services:
    """The services that the pod provides to the contexts of its jobs."""

    models: Models
    tools: Tools
    files: Files
    specs: Specs
    policies: Policies
    breakers: CircuitBreakers
    facts: Facts
    gateway: EffectGateway
    clock: DatabaseClock
    bulk: BulkOperations
    upkeep: Upkeep
    channels: Channels
    signals: Signals
    callbacks: Callbacks
    publisher: Publisher
    children: Children
    workspaces: Path
    """Folder that contains one folder for each job's files."""
    rng: random.Random
    arrivals: Arrivals = attrs.field(factory=NoArrivals)
    meter: Meter = attrs.field(factory=Unmetered)
    tracing: Tracing = attrs.field(factory=Untraced)
    resources: Resources = attrs.field(factory=Resources)
    log: JobLog | None = None
    """Keeps the lines that jobs write; None: nobody does."""


class Attempt:
    """What job code, its effects and its tools know of their attempt."""

    __slots__ = (
        "_contenders",
        "_ends_at",
        "_instants",
        "_limits",
        "_token",
        "claim",
        "final",
        "find_type",
        "journal",
        "kept_files",
        "services",
    )

    def __init__(
        self,
        claim: Claim,
        journal: Journal,
        services: Services,
        *,
        final: tuple[type[Exception], ...] = (),
        find_type: Callable[[str], Any] = lambda _: None,
    ) -> None:
        """`final`: exceptions that are never retried. `find_type`: a `JobType` of this process."""
        self.claim = claim
        self.journal = journal
        self.services = services
        self.final = final
        self.find_type = find_type
        self.kept_files: set[str] = set()
        """Digests of the files that this attempt has kept."""
        self._limits: JobLimits | None = None
        self._ends_at = trio.current_time() + claim.left_s
        self._token = trio.lowlevel.current_trio_token()
        # Made when they are used: most attempts wait for nothing.
        self._contenders: dict[str, Contender] | None = None
        self._instants: dict[str, datetime] | None = None

    @property
    def job_id(self) -> UUID:
        return self.claim.lease.job_id

    @property
    def number(self) -> int:
        """From 1; raised whenever the job is started again."""
        return self.claim.lease.attempt

    @property
    def lineage_id(self) -> UUID:
        """The first job of the lineage that this one continues; itself, if it is the first."""
        return self.claim.lineage_id or self.claim.lease.job_id

    @property
    def contenders(self) -> dict[str, Contender]:
        """Waits that job code has made, by their keys: see `Context.first`."""
        if self._contenders is None:
            self._contenders = {}
        return self._contenders

    @property
    def instants(self) -> dict[str, datetime]:
        """Ends of waits that this attempt has fixed, by the keys of their steps."""
        if self._instants is None:
            self._instants = {}
        return self._instants

    @property
    def published(self) -> Published:
        """What the attempt publishes; any thread of the job may use it."""
        journal = self.journal
        if journal.published is None:
            journal.published = Published(
                self.claim.lease,
                self.services.publisher,
                is_replaying=lambda: journal.is_replaying,
                token=self._token,
            )
        return journal.published

    @property
    def agent(self) -> tuple[UUID, int] | None:
        """The agent and the version that the job runs, if it runs one."""
        claim = self.claim
        if claim.agent_id is None or claim.agent_version is None:
            return None
        return claim.agent_id, claim.agent_version

    @property
    def waits_count(self) -> int:
        """How many times in a row the job was suspended without a step in between."""
        return self.claim.waits_count

    @property
    def workspace(self) -> Path:
        """Folder of the job's own files; may not exist yet, or be on another machine.

        A job that continues a failed one works in the folder of the first of them.
        """
        return self.services.workspaces / str(self.lineage_id)

    def traceparent(self, key: str | None) -> str | None:
        """Return the header for what step `key`, or the handler, calls; None: there is no trace."""
        trace = self.journal.trace
        if trace is None:
            return self.services.tracing.handed_on(self.claim)
        return str(trace.span if key is None else trace.step_span(key))

    async def agent_spec(self) -> dict[str, Any] | None:
        """Return the specification of the agent version that the job was submitted with."""
        return None if self.agent is None else await self.services.specs.agent(*self.agent)

    async def limits(self) -> JobLimits:
        """Return the limits of the job's calls: those that it began with."""
        if self._limits is None:
            self._limits = await self.services.policies.limits(self.claim)
        return self._limits

    async def step_s(self) -> float:
        """Return the limit of a step without a limit of its own, in seconds."""
        return (await self.limits()).step_s

    @property
    def known_step_s(self) -> float | None:
        """The same if that takes no database."""
        if self._limits is None:
            self._limits = self.services.policies.known_limits(self.claim)
        return None if self._limits is None else self._limits.step_s

    def check_step_timeout(self, seconds: float, *, source: str) -> None:
        """Raise `UsageError` for a limit of a step that is longer than a job may take."""
        check_step_timeout(seconds, job_s=self.claim.timeout_s, source=source)

    def cuts(self, limit_s: float) -> bool:
        """Return whether the job's own limit comes before one that begins now."""
        return self._ends_at <= trio.current_time() + limit_s

    async def caller(self, key: str) -> Caller:
        """Return the caller for calls made by step `key`."""
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
            trace=self.journal.trace,
        )
