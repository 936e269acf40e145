"""One valid default of each record, and fakes of what a pod lends to its jobs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from attrs import define, field

from cortex.domain.errors import LeaseLost
from cortex.domain.job import Claim, Lease, Step, StepDone, Submission
from cortex.domain.model import ModelRequest, ModelResponse
from cortex.domain.usage import Usage
from cortex.durable.codec import digest_of
from cortex.durable.context import Context, Services
from cortex.durable.journal import Journal, Outcome
from cortex.store.pods import Pod, Vitals
from tests.support.rows import new_id

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


def a_step(key: str = "step", *, seq: int = 1, given: object = (), output: str = "null") -> Step:
    """A committed step whose input was `given`."""
    digest = digest_of(given, what="input")
    return Step(seq=seq, key=key, digest=digest, output=output, usage=None, cost_usd=None)


@define
class Record:
    """A recorder that keeps what it is given; what is in it survives the attempt."""

    steps: list[Step] = field(factory=list)
    heads: list[str] = field(factory=list)
    refuse: Exception | LeaseLost | None = None
    """What the next operation fails with, without being recorded."""

    async def record(self, operation: StepDone) -> None:
        seq, head = operation.number()
        refused, self.refuse = self.refuse, None
        if refused is not None:
            raise refused
        operation.committed()
        self.heads.append(head)
        self.steps.append(
            Step(
                seq=seq,
                key=operation.key,
                digest=operation.digest,
                output=operation.output,
                usage=None,
                cost_usd=operation.cost_usd,
            )
        )

    @property
    def keys(self) -> list[str]:
        return [step.key for step in self.steps]


@define
class EchoModel:
    """Answers each request with its last message; counts the calls."""

    asked: list[ModelRequest] = field(factory=list)

    async def respond(self, request: ModelRequest) -> Outcome:
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
        return Outcome(value=response.to_json(), usage=usage)


@define
class EchoTools:
    """Returns a call's arguments, or raises what `error` says; counts the calls."""

    called: list[tuple[str, str]] = field(factory=list)
    error: Exception | None = None

    def offer(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [{"name": name} for name in names]

    async def call(
        self,
        ctx: Context,  # noqa: ARG002  (as pods call it)
        name: str,
        arguments: Mapping[str, Any],
        *,
        call_id: str,
        folder: Path | None,  # noqa: ARG002
    ) -> Any:
        self.called.append((name, call_id))
        if self.error is not None:
            raise self.error
        return dict(arguments)


class NoAgents:
    """No job here has an agent."""

    async def spec(self, agent_id: UUID, version: int) -> dict[str, Any]:
        raise AssertionError(f"agent {agent_id} {version} was asked for")


def services(**fields: Any) -> Services:
    defaults: dict[str, Any] = {
        "models": EchoModel(),
        "tools": EchoTools(),
        "agents": NoAgents(),
        "workspaces": Path("workspaces"),
    }
    return Services(**defaults | fields)


def a_context(record: Record | None = None, claim: Claim | None = None, **lent: Any) -> Context:
    """The context of a new attempt that finds what is in the record."""
    record = record or Record()
    claim = claim or a_claim()
    return Context(claim, Journal(claim.lease, record, list(record.steps)), services(**lent))
