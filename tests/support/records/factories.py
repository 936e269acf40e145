"""One valid default of each record, and fakes of what a pod lends to its jobs."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import trio
from attrs import define, field

from cortex.actors.actor import Actor
from cortex.actors.ticker import Pacer
from cortex.domain.approvals.approval import Decided
from cortex.domain.clock import system_chance
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.effect import Invocation
from cortex.domain.failure import Failure
from cortex.domain.job import (
    Claim,
    EffectIntent,
    EffectReport,
    IntentReply,
    Lease,
    Step,
    StepDone,
    Submission,
)
from cortex.domain.known_tool import KnownTool
from cortex.domain.log_line import JobLog
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.policy import JobPolicy, policy_for
from cortex.domain.signals import ReceivedSignal
from cortex.domain.usage import Usage
from cortex.durable.attempt import (
    Attempt,
    EffectTerms,
    JobLimits,
    Services,
    ToolCall,
    ToolPlan,
    UpkeepResult,
)
from cortex.durable.calls import Caller
from cortex.durable.codec import NO_INPUT
from cortex.durable.context import Context
from cortex.durable.gates import Gate
from cortex.durable.journal import NO_PAST, Journal, Recorded
from cortex.durable.registry import Handler, Registry, job
from cortex.durable.step_outcome import StepOutcome
from cortex.runtime.calls.bulk_operations import StoreBulkOperations
from cortex.runtime.calls.store_clock import StoreClock
from cortex.runtime.commit.committer import Committer
from cortex.runtime.isolation.isolation import Isolation
from cortex.runtime.jobs.deadlines import JobDeadlines
from cortex.runtime.jobs.dispatcher import Dispatcher
from cortex.runtime.jobs.job_actor import JobActors
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.running import RunningJob, RunningJobs
from cortex.runtime.self_fence import SelfFence
from cortex.store import jobs as store_jobs
from cortex.store import tasks
from cortex.store.pods import Pod, Vitals
from cortex.testing.children import MemoryChildren, MemoryFamily
from cortex.testing.ledger import Ledger
from cortex.testing.model import KeptFiles
from cortex.testing.published import PublishedRecord
from cortex.testing.services import Admitted, InMemoryCallbacks, TypePolicies
from cortex.testing.steps import StepRecord
from tests.support.records.bulk import BulkList
from tests.support.records.channels import ChannelList
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import new_id, seeded_random

JOB_TYPE = "work"
VITALS = Vitals(state="READY", loop_lag_ms=0.0, rss_bytes=1, hint_latency_ms=None)


def a_lease(attempt: int = 1, *, job_id: UUID | None = None) -> Lease:
    return Lease(job_id or new_id(), attempt)


def a_claim(**fields: Any) -> Claim:
    defaults: dict[str, Any] = {
        "lease": a_lease(),
        "type": JOB_TYPE,
        "payload": "{}",
        "agent_id": None,
        "agent_version": None,
        "attempts_spent": 1,
        "max_attempts": 3,
        "is_queued": False,
        "has_steps": False,
        "cancel_requested": False,
        "left_s": 60.0,
        "timeout_s": 60,
    }
    return Claim(**defaults | fields)


def a_submission(**fields: Any) -> Submission:
    defaults: dict[str, Any] = {"id": new_id(), "type": JOB_TYPE}
    return Submission(**defaults | fields)


def a_pod(**fields: Any) -> Pod:
    pod_id = new_id()
    defaults: dict[str, Any] = {
        "id": pod_id,
        "lock_key": pod_id.int % 2**63,
        "name": f"pod-{pod_id.hex[:6]}",
        "version": "0",
        "job_types": (JOB_TYPE,),
        "slots": 10,
    }
    return Pod(**defaults | fields)


def a_step(key: str = "step", *, seq: int = 1, output: str = "null") -> Step:
    """A committed step that was given nothing."""
    return Step(seq=seq, key=key, digest=NO_INPUT.digest, output=output, usage=None, cost_usd=None)


@define
class Record(StepRecord):
    """A recorder that keeps what it is given; what is in it survives the attempt."""

    refuse: Exception | LeaseLost | None = None
    """What the next operation fails with, without being recorded."""

    async def record(self, operation: StepDone) -> None:
        refused, self.refuse = self.refuse, None
        if refused is not None:
            raise refused
        await super().record(operation)


@define
class EchoModel:
    """Answers each request with its last message; counts the calls."""

    asked: list[ModelRequest] = field(factory=list)

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:  # noqa: ARG002
        self.asked.append(request)
        usage = Usage(input_tokens=10, output_tokens=1)
        text = str(request.messages[-1]["content"])
        response = ModelResponse(
            model=request.model,
            content=({"type": "text", "text": text},),
            stop_reason="end_turn",
            usage=usage,
            message_id=f"message-{len(self.asked)}",
        )
        return StepOutcome(value=response.to_json(), usage=usage)


@define
class EchoTools:
    """Returns a call's arguments, or raises what `error` says; counts the calls."""

    called: list[tuple[str, str]] = field(factory=list)
    error: Exception | None = None
    effect: EffectTerms | None = None
    gate: Gate | None = None
    names: Sequence[str] = ()

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"name": name} for name in names]

    def misfit(self, *_: object) -> None: ...

    def asks(self, name: str) -> bool:  # noqa: ARG002
        return False

    def lasts_over(self, name: str, seconds: float) -> bool:  # noqa: ARG002
        return False

    def is_required(self, name: str) -> bool:  # noqa: ARG002
        return False

    async def listed(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    async def close(self) -> None: ...

    async def keep(self, workspace: Path, name: str, text: str) -> str | None:  # noqa: ARG002
        return None

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        async def run(invocation: Invocation | None) -> Any:
            self.called.append((call.tool, f"{attempt.job_id}/{call.key}"))
            if self.error is not None:
                raise self.error
            return dict(call.arguments)

        async def guard(work: Callable[[], Awaitable[Any]]) -> Any:
            return await work()

        return ToolPlan(
            arguments=call.arguments,
            effect=self.effect,
            gate=self.gate,
            run=run,
            guard=guard,
            limit_s=60.0,
        )


@define
class LedgerDesk:
    """A ledger and the decisions of people, for contexts without a database."""

    intents: list[EffectIntent] = field(factory=list)
    waits: list[float] = field(factory=list)
    """The limits of the calls that asked whether they may begin."""
    reports: list[EffectReport] = field(factory=list)
    verdicts: list[str] = field(factory=list)
    """What intents are answered next; then what the ledger says."""
    decided: dict[str, Decided] = field(factory=dict)
    ledger: Ledger = field(factory=lambda: Ledger(lambda _: None, lambda _: True))

    def new_id(self) -> UUID:
        return new_id()

    async def until_it_may_begin(self, call_s: float) -> None:
        self.waits.append(call_s)

    async def intend(self, intent: EffectIntent) -> IntentReply:
        self.intents.append(intent)
        if not self.verdicts:
            return self.ledger.intend(intent)
        verdict, first = self.verdicts.pop(0), self.intents[0]
        if verdict == "recheck":
            self.ledger.intend(first)
        return IntentReply(
            id=first.id,
            verdict=verdict,
            attempt=intent.lease.attempt,
            result='"recorded"' if verdict == "done" else None,
            why=None,
            quota="q",
            used=Decimal(1),
            limit=Decimal(1),
            amount=Decimal(2),
            wait_s=60.0,
        )

    async def record(self, operation: EffectReport) -> None:
        self.reports.append(operation)
        if any(each.id == operation.id for each in self.ledger.effects):
            self.ledger.report(operation)

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:  # noqa: ARG002
        return self.decided.get(key)


def a_tool_call(
    tool: str, arguments: Mapping[str, Any] | None = None, *, folder: Path | None = None
) -> ToolCall:
    return ToolCall(
        tool=tool,
        arguments=arguments or {},
        key=f"1 {tool}",
        gate_key=f"1 {tool} approval",
        said=None,
        folder=folder,
        timeout_s=None,
    )


class DefaultPolicies:
    """Every job has the defaults."""

    async def policy(self, claim: Claim) -> JobPolicy:
        return policy_for(claim.type)

    def known_limits(self, claim: Claim) -> JobLimits | None:  # noqa: ARG002
        return None

    async def limits(self, claim: Claim) -> JobLimits:
        return TypePolicies(policy_for(claim.type)).known_limits(claim)


@define
class FreeAdmission(Admitted):
    """Leave to call; keeps what was reported."""

    reports: list[Failure | None] = field(factory=list)

    async def succeeded(self) -> None:
        self.reports.append(None)

    async def failed(self, failure: Failure) -> None:
        self.reports.append(failure)


@define
class ClosedBreakers:
    """Lets every call through, or raises what `suspended` holds; keeps who asked."""

    admissions: dict[str, list[FreeAdmission]] = field(factory=dict)
    suspended: Suspended | None = None

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[FreeAdmission]:
        if self.suspended is not None:
            raise self.suspended
        admission = FreeAdmission()
        self.admissions.setdefault(name, []).append(admission)
        yield admission


@define
class FactList:
    """Keeps the failures that did not end an attempt."""

    failures: list[tuple[str, Failure, str]] = field(factory=list)

    resolved_count: int = 0

    async def failed(
        self,
        caller: Caller,
        failure: Failure,
        *,
        resolution: str,
        goes_on: bool = True,  # noqa: ARG002
        number: int | None = None,  # noqa: ARG002
    ) -> list[int]:
        self.failures.append((caller.key, failure, resolution))
        return [len(self.failures)]

    async def resolved(self, caller: Caller, fact_ids: Sequence[int]) -> None:  # noqa: ARG002
        self.resolved_count += len(fact_ids)


class NoSignals:
    """Nothing is sent."""

    async def take(self, claim: Claim, **asked: str | None) -> ReceivedSignal | None: ...


class NoUpkeep:
    """No runner: its run does nothing."""

    async def run_once(self, _: str) -> UpkeepResult:
        return UpkeepResult(items=0, is_skipped=True)


class NoSpecs:
    """There are no agents and no flows here."""

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:
        raise AssertionError(f"agent {agent_id} {version} was asked for")

    async def newest_agent(self, name: str) -> tuple[UUID, int]:
        raise AssertionError(f"agent {name} was asked for")

    async def flow(self, name: str, version: int) -> dict[str, Any]:
        raise AssertionError(f"flow {name} {version} was asked for")

    async def known_tools(self, *_: Any) -> list[KnownTool]:
        raise AssertionError("tools of servers were asked for")

    async def note_tools(self, *_: Any, **__: Any) -> list[KnownTool]:
        raise AssertionError("tools of servers were found")


@define
class TrioClock:
    """A database whose clock goes with trio's, or is ahead of it."""

    ahead_s: float = 0.0

    async def now(self) -> datetime:
        now_s = trio.current_time() + self.ahead_s
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=now_s)


def services(**fields: Any) -> Services:
    defaults: dict[str, Any] = {
        "models": EchoModel(),
        "tools": EchoTools(),
        "files": KeptFiles(),
        "specs": NoSpecs(),
        "policies": DefaultPolicies(),
        "breakers": ClosedBreakers(),
        "facts": FactList(),
        "gateway": LedgerDesk(),
        "clock": TrioClock(),
        "bulk": BulkList(()),
        "upkeep": NoUpkeep(),
        "channels": ChannelList(),
        "children": MemoryChildren(MemoryFamily(), lambda _: None, lambda _: None),
        "signals": NoSignals(),
        "callbacks": InMemoryCallbacks(TrioClock()),
        "publisher": PublishedRecord(),
        "workspaces": Path("workspaces"),
        "rng": seeded_random(),
    }
    return Services(**defaults | fields)


def a_context(record: Record | None = None, claim: Claim | None = None, **lent: Any) -> Context:
    """The context of a new attempt that finds what is in the record, and its `past` if given."""
    record, claim = record or Record(), claim or a_claim()
    past = lent.pop("past", NO_PAST)
    recorded = Recorded(steps=[*record.steps], recall=record.recall, past=past)
    journal = Journal(claim.lease, record, recorded)
    return Context(Attempt(claim, journal, services(**lent)))


@define
class Bench:
    """The parts of one pod, wired as a pod has them, for a test to drive by hand."""

    port: FaultyPort
    jobs: trio.Nursery
    """Where job actors run."""
    slots: int = 10
    pod: Pod = field(factory=a_pod)
    rng: random.Random = field(factory=seeded_random)
    registry: Registry = field(factory=Registry)
    isolation: Isolation | None = None
    log: JobLog | None = None
    running: RunningJobs = field(init=False)
    self_fence: SelfFence = field(init=False)
    committer: Committer = field(init=False)
    receipts: Receipts = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.running = RunningJobs(slots=self.slots)
        self.self_fence = SelfFence(fence_s=60.0, settle_s=0.0)
        self.self_fence.locked()
        self.self_fence.beaten(trio.current_time())
        self.committer = Committer(self.port, pod_id=self.pod.id, rng=self.rng)
        self.receipts = Receipts(
            self.port, workspaces=Path("data/workspaces"), unix_ms=system_chance().unix_ms
        )

    async def start_committing(self) -> None:
        """Run what job actors need beside them."""
        await self.start(self.committer)
        deadlines = JobDeadlines(self.running)
        self.running.observers.append(deadlines)
        await self.start(deadlines)

    async def start(self, actor: Actor) -> None:
        """Run an actor beside the test until it ends."""
        await self.jobs.start(actor.run)

    def handle(self, handler: Handler, **options: Any) -> None:
        """Make an async function the handler of `JOB_TYPE`."""
        self.registry.add(job(JOB_TYPE, **options)(handler))

    def actors(self) -> JobActors:
        return JobActors(
            port=self.port,
            committer=self.committer,
            registry=self.registry,
            services=services(
                clock=StoreClock(port=self.port, rng=self.rng),
                bulk=StoreBulkOperations(port=self.port, rng=self.rng),
                log=self.log,
            ),
            policies=DefaultPolicies(),
            receipts=self.receipts,
            running=self.running,
            rng=self.rng,
            isolation=self.isolation,
        )

    def dispatcher(self, *, poll_s: float = 60.0, only: UUID | None = None) -> Dispatcher:
        dispatcher = Dispatcher(
            self.port,
            pod_id=self.pod.id,
            config_id=1,
            actors=self.actors(),
            jobs_nursery=self.jobs,
            self_fence=self.self_fence,
            pacer=Pacer(rng=self.rng),
            poll_s=poll_s,
            only=only,
        )
        self.running.observers.append(dispatcher)
        return dispatcher

    async def submit(self, count: int = 1, **fields: Any) -> list[UUID]:
        batch = [a_submission(**fields) for _ in range(count)]
        await self.port(store_jobs.submit, batch)
        return [each.id for each in batch]

    async def claim(self, limit: int = 500, *, isolated: int = 500) -> list[Claim]:
        """Promote and claim, as the dispatcher does."""
        await self.port(tasks.promote)
        claims: list[Claim] = await self.port(
            tasks.claim, pod_id=self.pod.id, types=[JOB_TYPE], limit=limit, isolated=isolated
        )
        return claims

    async def claimed(self, count: int = 1, **fields: Any) -> list[Claim]:
        """Submit and claim `count` jobs."""
        await self.submit(count, **fields)
        return await self.claim(count)

    def run(self, claim: Claim) -> RunningJob:
        """Start the job actor of a claim."""
        actors = self.actors()
        running = self.running.add(claim, is_isolated=actors.isolates(claim))
        self.jobs.start_soon(actors.run, claim, running)
        return running


async def run_twice(handler: Callable[[Context], Awaitable[Any]], **lent: Any) -> list[Any]:
    """The results of a first attempt and of one that replays it whole."""
    record = Record()
    first = await handler(a_context(record, **lent))
    recorded = len(record.steps)
    second = await handler(a_context(record, **lent))
    assert len(record.steps) == recorded, "the second attempt recorded something"
    return [first, second]
