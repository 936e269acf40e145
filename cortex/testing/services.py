"""What a pod lends to its jobs, for a job in a test."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import attrs

from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.files import PromptFiles
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.callbacks import Callback, Signer
from cortex.domain.control_flow import LeaseLost
from cortex.domain.failure import Failure
from cortex.domain.job import Claim
from cortex.domain.known_tool import KnownTool, first_use
from cortex.domain.log_line import JobLog
from cortex.domain.messages.message import Message
from cortex.domain.model import Capabilities, ModelRequest
from cortex.domain.policy import JobPolicy
from cortex.domain.prices import LIST_PRICES
from cortex.domain.timeouts import TIMEOUTS
from cortex.durable.attempt import ApprovalReminder, JobLimits, Services
from cortex.durable.calls import Caller
from cortex.durable.journal import Journal
from cortex.durable.resources import Resources
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.timers import DatabaseClock
from cortex.testing.agents import Agent
from cortex.testing.budgets import MemoryBudgets
from cortex.testing.children import MemoryChildren
from cortex.testing.clock import RunClock
from cortex.testing.model import KeptFiles, ScriptedModel, StepModel
from cortex.testing.record import AttemptRecord


class Admitted:
    """Leave to call."""

    def opened(self, *, idle_s: float) -> None: ...
    async def succeeded(self) -> None: ...
    async def failed(self, failure: Failure) -> None: ...


class ClosedBreakers:
    """Let every call through."""

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[Admitted]:  # noqa: ARG002
        yield Admitted()


class NoFacts:
    """Records no failures that an attempt survives."""

    async def failed(
        self,
        caller: Caller,  # noqa: ARG002
        failure: Failure,  # noqa: ARG002
        *,
        resolution: str,  # noqa: ARG002
        goes_on: bool = True,  # noqa: ARG002
        number: int | None = None,  # noqa: ARG002
    ) -> list[int]:
        return []

    async def resolved(self, caller: Caller, fact_ids: Sequence[int]) -> None: ...


@attrs.frozen
class TypePolicies:
    """The limits of a job's type."""

    policy: JobPolicy

    def known_limits(self, claim: Claim) -> JobLimits:  # noqa: ARG002
        return JobLimits(
            prices=LIST_PRICES,
            call_s=self.policy.call_s,
            idle_s=TIMEOUTS["llm_idle"].default_s,
            connect_s=self.policy.connect_s,
            step_s=TIMEOUTS["step"].default_s,
        )

    async def limits(self, claim: Claim) -> JobLimits:
        return self.known_limits(claim)


@attrs.frozen
class Models:
    """The scripted model behind everything that a pod has around a model."""

    scripted: ScriptedModel
    requested: Callable[[], Sequence[str]]
    clock: RunClock
    stuck: Callable[[str], None]
    rng: random.Random
    files: KeptFiles
    budgets: MemoryBudgets

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return self.scripted.model.capabilities

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        calls = ModelCalls(
            client=StepModel(self.scripted, caller.key, self.requested, self.clock, self.stuck),
            breakers=ClosedBreakers(),
            budget_guard=self.budgets,
            facts=NoFacts(),
            rng=self.rng,
            files=PromptFiles(self.files),
        )
        return await calls.respond(request, caller)


@attrs.frozen
class Specs:
    """The agent that the job runs; there are no others, and no flows."""

    only: Agent | None
    stuck: Callable[[str], None]
    noted: dict[tuple[str, str], list[KnownTool]] = attrs.field(factory=dict)
    """Tools of MCP servers, as the first use found them."""

    async def agent(self, agent_id: UUID, version: int) -> dict[str, Any]:  # noqa: ARG002
        return self._refuse("an agent") if self.only is None else self.only.stored

    async def newest_agent(self, name: str) -> tuple[UUID, int]:
        return self._refuse(f"agent {name!r}")

    async def flow(self, name: str, version: int) -> dict[str, Any]:
        return self._refuse(f"version {version} of flow {name!r}")

    async def known_tools(self, agent: str, server: str, identity: str) -> list[KnownTool]:  # noqa: ARG002
        return self.noted.get((server, identity), [])

    async def note_tools(
        self,
        agent: str,
        server: str,
        identity: str,
        *,
        tools: dict[str, str],
        named: list[str],  # noqa: ARG002
    ) -> list[KnownTool]:
        known = [first_use(agent, server, identity, name, text) for name, text in tools.items()]
        return self.noted.setdefault((server, identity), known)

    def _refuse(self, what: str) -> NoReturn:
        self.stuck(f"asks for {what} of the database, which a test does not have")
        raise LeaseLost("stuck")


class NoSubscriptions:
    """Nobody is subscribed: notifications are taken and go nowhere."""

    async def routes(self, topic: str, *, tenant: str, payload: dict[str, Any]) -> list[str]:  # noqa: ARG002
        return []

    async def send(self, name: str, message: Message, *, limit_s: float) -> Failure | None: ...

    async def origin(self, job_id: UUID) -> str | None:  # noqa: ARG002
        return None

    async def remind(self, approval: str, *, message_id: UUID) -> ApprovalReminder:  # noqa: ARG002
        return ApprovalReminder(approval=approval, status="PENDING", notified=[])

    async def notify(
        self, claim: Claim, payload: str, *, job_id: UUID, traceparent: str | None
    ) -> None: ...


@attrs.frozen
class InMemoryCallbacks:
    """Callback URLs that nobody serves: a test sends the signal itself."""

    clock: DatabaseClock
    signer: Signer = attrs.field(
        factory=lambda: Signer("https://cortex.test", ("in memory, and nowhere else at all",))
    )

    async def open(
        self,
        claim: Claim,
        *,
        key: str,
        name: str,  # noqa: ARG002
        expires_s: float,
        schema: str | None,  # noqa: ARG002
    ) -> Callback:
        callback_id, address, signed_with = self.signer.new(claim.lease.job_id, key)
        expires_at = await self.clock.now() + timedelta(seconds=expires_s)
        return Callback(
            address=address, id=callback_id, signed_with=signed_with, expires_at=expires_at
        )

    async def url(self, claim: Claim, callback: Callback) -> str:
        return self.signer.url(claim.lease.job_id, callback)


@attrs.frozen
class Missing:
    """A part of a pod that tests of jobs do not have: a job that calls it is stuck."""

    what: str
    stuck: Callable[[str], None]
    """Takes the reason, in words for people."""

    def __getattr__(self, method: str) -> Any:
        async def refuse(*_args: Any, **_kwargs: Any) -> Any:
            self.stuck(f"asks for {self.what}, which a test of a job does not have")
            raise LeaseLost("stuck")

        return refuse


def services_of(
    attempt: AttemptRecord,
    journal: Journal,
    *,
    policy: JobPolicy,
    agent: Agent | None,
    tools: Toolbox,
    scripted: ScriptedModel,
    budgets: MemoryBudgets,
    clock: RunClock,
    resources: Resources,
    workspaces: Path,
    rng: random.Random,
    log: JobLog | None,
    stuck: Callable[[str], None],
) -> Services:
    """Return the services of one attempt."""
    return Services(
        models=Models(
            scripted, lambda: journal.requested, clock, stuck, rng, scripted.files, budgets
        ),
        tools=tools,
        files=scripted.files,
        specs=Specs(agent, stuck),
        policies=TypePolicies(policy),
        breakers=ClosedBreakers(),
        facts=NoFacts(),
        gateway=attempt,
        clock=clock,
        bulk=Missing("many jobs", stuck),
        upkeep=Missing("the background work of a pod", stuck),
        channels=NoSubscriptions(),
        children=MemoryChildren(attempt.job.family, attempt.reach, stuck),
        signals=attempt,
        callbacks=InMemoryCallbacks(clock),
        publisher=attempt,
        workspaces=workspaces,
        rng=rng,
        resources=resources,
        log=log,
    )
