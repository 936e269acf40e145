"""Calls of tools: their record, requests to people, and results for the model."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Risk
from cortex.domain.canonical import canonical
from cortex.domain.control_flow import Suspended
from cortex.domain.effect import Applied, Invocation, Verdict
from cortex.domain.errors import (
    ApprovalExpiredError,
    DeniedError,
    RejectedError,
    TransientError,
    UsageError,
)
from cortex.durable.attempt import Attempt, EffectTerms, ToolCall, ToolPlan
from cortex.durable.context import Context
from cortex.durable.effects import NotDone
from cortex.durable.gates import Decision, Gate
from cortex.durable.journal import KEY_CHARS_MAX
from cortex.testing.people import decided_on
from tests.support.records.factories import (
    EchoTools,
    FactList,
    LedgerDesk,
    Record,
    a_claim,
    a_context,
)

GIVEN = {"amount": 5, "to": "ana"}
BLIND = EffectTerms(is_idempotent=False, reconcile=None)


async def applied(_: Invocation) -> Verdict:
    return Applied("earlier")


def output(error: Exception) -> dict[str, str]:
    return {"tool_error": f"{type(error).__name__}: {error}"}


@attrs.define
class Job:
    """One job over its attempts, on one ledger."""

    tools: EchoTools
    record: Record = attrs.field(factory=Record)
    gateway: LedgerDesk = attrs.field(factory=LedgerDesk)
    facts: FactList = attrs.field(factory=FactList)
    claim: Any = attrs.field(factory=a_claim)
    notes: list[Decision] = attrs.field(factory=list)

    def attempt(self) -> Context:
        lent = {"tools": self.tools, "gateway": self.gateway, "facts": self.facts}
        return a_context(self.record, self.claim, **lent)

    async def call(self, *, tells: bool = False, **given: Any) -> Any:
        """The result of the call in one attempt."""
        return await self.attempt().tool(
            "pay",
            "pay",
            given or GIVEN,
            on_error=output if tells else None,
            on_edited=self.notes.append,
        )

    async def asks(self) -> ApprovalRequest:
        """The one request that an attempt makes."""
        with pytest.raises(Suspended) as caught:
            await self.call()
        (request,) = caught.value.requests
        return request

    def decide(self, request: ApprovalRequest, status: ApprovalStatus, **fields: Any) -> None:
        job_id = self.claim.lease.job_id
        self.gateway.decided[request.key] = decided_on(request, status, job_id=job_id, **fields)


# --- effects


async def test_typed_arguments_reach_the_tool_as_json() -> None:
    job = Job(EchoTools())
    seen = await job.call(at=datetime(2026, 1, 31, tzinfo=UTC), parts=(Decimal("1.10"),))
    assert seen == {"at": "2026-01-31T00:00:00+00:00", "parts": ["1.10"]}


async def test_pure_tool_makes_no_intent() -> None:
    job = Job(EchoTools())
    assert await job.call() == GIVEN
    assert (job.gateway.intents, job.record.keys) == ([], ["pay"])


async def test_a_call_may_have_as_long_a_name_as_any_step() -> None:
    job = Job(EchoTools(effect=BLIND))
    for _ in range(2):
        assert await job.attempt().tool("x" * KEY_CHARS_MAX, "pay", GIVEN) == GIVEN
    assert len(job.tools.called) == 1


async def test_an_effect_is_intended_as_it_is_called() -> None:
    job = Job(EchoTools(effect=BLIND))
    assert [await job.call() for _ in range(2)] == [GIVEN] * 2
    (intent,) = job.gateway.intents
    assert (intent.key, intent.tool, intent.arguments) == ("pay", "pay", canonical(GIVEN))
    assert len(job.tools.called) == 1


async def test_failure_shown_to_the_model_is_recorded_with_its_step() -> None:
    job = Job(EchoTools(effect=BLIND, error=RejectedError("no")))
    expected = {"tool_error": "RejectedError: no"}
    assert [await job.call(tells=True) for _ in range(2)] == [expected] * 2
    assert (job.gateway.reports, len(job.tools.called)) == ([], 1), "its step reports it"
    assert [resolution for _, _, resolution in job.facts.failures] == ["reported to the model"]


async def test_raised_failure_is_reported_first() -> None:
    job = Job(EchoTools(effect=BLIND, error=RejectedError("no")))
    with pytest.raises(RejectedError):
        await job.call()

    def raises(error: Exception) -> Any:
        raise error

    with pytest.raises(RejectedError):
        await job.attempt().tool("pay", "pay", GIVEN, on_error=raises)
    assert [each.is_applied for each in job.gateway.reports] == [False, False]
    assert job.record.keys == []


async def test_unknown_outcome_never_goes_to_the_model() -> None:
    job = Job(EchoTools(effect=BLIND, error=ConnectionResetError("cut")))
    with pytest.raises(Suspended) as caught:
        await job.call(tells=True)
    assert caught.value.unknown
    assert job.record.keys == []


async def test_effect_applied_despite_an_error_returns_its_result() -> None:
    asks = EffectTerms(is_idempotent=False, reconcile=applied)
    job = Job(EchoTools(effect=asks, error=ConnectionResetError("cut")))
    assert await job.call(tells=True) == "earlier"


async def test_a_call_that_does_not_fit_is_not_intended() -> None:
    class Unfit(EchoTools):
        async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
            raise UsageError(f"{call.tool} of {attempt.job_id} does not fit")

    job = Job(Unfit(effect=BLIND))
    assert "UsageError" in (await job.call(tells=True))["tool_error"]
    with pytest.raises(UsageError):
        await Job(Unfit(effect=BLIND)).call()
    assert job.gateway.intents == []


async def test_arguments_that_no_record_can_hold_are_not_called() -> None:
    job = Job(EchoTools(effect=BLIND))
    result = await job.call(tells=True, note="a\0b")
    assert "NUL" in result["tool_error"]
    assert (job.tools.called, job.gateway.intents) == ([], [])


class Opening(EchoTools):
    """A tool whose breaker opens by the failure reported to it."""

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        plan = await super().plan(attempt, call)

        async def guard(work: Callable[[], Awaitable[Any]]) -> Any:
            if isinstance(await work(), NotDone):
                raise Suspended("tool:pay", "its breaker has opened", delay_s=30)

        return attrs.evolve(plan, guard=guard)


async def test_a_certain_failure_that_opens_the_breaker_stays_certain() -> None:
    job = Job(Opening(effect=BLIND, error=ConnectionRefusedError(111, "closed")))
    with pytest.raises(Suspended, match="its breaker has opened"):
        await job.call(tells=True)
    assert [each.is_applied for each in job.gateway.reports] == [False]


# --- approvals


async def test_an_approved_call_uses_up_its_decision() -> None:
    job = Job(EchoTools(effect=BLIND, gate=Gate()))
    request = await job.asks()
    assert (request.tool, request.key, request.arguments) == (
        "pay",
        "pay approval",
        canonical(GIVEN),
    )
    assert job.tools.called == []
    job.decide(request, ApprovalStatus.APPROVED)
    assert await job.call() == GIVEN
    (intent,) = job.gateway.intents
    assert (intent.approval_id, intent.digest) == (request.id, request.digest)
    assert job.record.keys == ["pay approval", "pay"]
    assert job.notes == []


@pytest.mark.parametrize("effect", [BLIND, None])
async def test_edited_arguments_run_and_are_noted_on_every_attempt(
    effect: EffectTerms | None,
) -> None:
    edited = {"amount": 3, "to": "ana"}
    job = Job(EchoTools(effect=effect, gate=Gate(schema={})))
    request = await job.asks()
    job.decide(request, ApprovalStatus.APPROVED, edited=edited)
    results = [await job.call() for _ in range(2)]
    job.gateway.decided.clear()
    results.append(await job.call())
    assert results == [edited] * 3
    (intent,) = job.gateway.intents
    assert intent.arguments == canonical(edited)
    first, *others = job.notes
    assert (first.arguments, first.by) == (edited, "test")
    assert others == [first, first]


class Filling(EchoTools):
    """Which fills in a default, as real tools do."""

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        plan = await super().plan(attempt, call)
        filled: Mapping[str, Any] = {"currency": "EUR", **call.arguments}
        return attrs.evolve(plan, arguments=filled)


async def test_edited_arguments_are_intended_verbatim() -> None:
    """The decision covers the arguments as edited, not as the tool would write them."""
    edited = {"amount": 3}
    job = Job(Filling(effect=BLIND, gate=Gate(schema={})))
    request = await job.asks()
    assert request.arguments == canonical({**GIVEN, "currency": "EUR"})
    job.decide(request, ApprovalStatus.APPROVED, edited=edited)
    await job.call()
    assert job.gateway.intents[0].arguments == canonical(edited)


class Graded(EchoTools):
    """Which needs two people for much, one for little."""

    async def plan(self, attempt: Attempt, call: ToolCall) -> ToolPlan:
        plan = await super().plan(attempt, call)
        much = Gate(risk=Risk.CRITICAL, people=2, schema={})
        little = Gate(risk=Risk.MED, schema={})
        return attrs.evolve(plan, gate=much if call.arguments["amount"] > 100 else little)


@pytest.mark.parametrize("asked, edited, is_made", [(5, 5_000, False), (5_000, 5, True)])
async def test_edit_beyond_its_approval_is_refused(
    *, asked: int, edited: int, is_made: bool
) -> None:
    """One person must not make a call of a small one that two people are to decide on."""
    job = Job(Graded(effect=BLIND))
    with pytest.raises(Suspended) as caught:
        await job.call(amount=asked)
    (request,) = caught.value.requests
    job.decide(request, ApprovalStatus.APPROVED, edited={"amount": edited})
    for _ in range(2):
        result = await job.call(tells=True, amount=asked)
        if is_made:
            assert result == {"amount": edited}
        else:
            assert "it is CRITICAL and 2 people must be asked" in result["tool_error"]
    assert len(job.gateway.intents) == len(job.tools.called) == int(is_made)


async def test_denial_goes_to_the_model_or_fails_the_job() -> None:
    job = Job(EchoTools(effect=BLIND, gate=Gate()))
    job.decide(await job.asks(), ApprovalStatus.DENIED, reason="too dear")
    results = [await job.call(tells=True) for _ in range(2)]
    assert results == [{"tool_error": "DeniedError: pay was denied by test: too dear"}] * 2
    fails = Job(EchoTools(effect=BLIND, gate=Gate(on_deny="fail")))
    fails.decide(await fails.asks(), ApprovalStatus.DENIED)
    with pytest.raises(DeniedError):
        await fails.call(tells=True)
    for each in (job, fails):
        assert (each.tools.called, each.gateway.intents) == ([], [])


async def test_expired_approval_goes_to_the_model_or_fails_the_job() -> None:
    job = Job(EchoTools(effect=BLIND, gate=Gate()))
    job.decide(await job.asks(), ApprovalStatus.EXPIRED)
    assert "in time" in (await job.call(tells=True))["tool_error"]
    fails = Job(EchoTools(effect=BLIND, gate=Gate(on_expiry="fail")))
    fails.decide(await fails.asks(), ApprovalStatus.EXPIRED)
    with pytest.raises(ApprovalExpiredError):
        await fails.call(tells=True)


async def test_approved_call_without_effect_may_fail() -> None:
    """Its intent only uses up the decision: the model receives its error, as without a gate."""
    job = Job(EchoTools(gate=Gate(), error=TransientError("not now")))
    job.decide(await job.asks(), ApprovalStatus.APPROVED)
    assert await job.call(tells=True) == {"tool_error": "TransientError: not now"}
    assert len(job.tools.called) == 1


async def test_calls_at_once_are_asked_for_at_once() -> None:
    job = Job(EchoTools(effect=BLIND, gate=Gate()))
    ctx = job.attempt()
    with pytest.raises(Suspended) as caught:
        await ctx.gather(*(ctx.tool("pay", "pay", {"amount": n}) for n in range(3)))
    keys = {request.key: request.arguments for request in caught.value.requests}
    assert keys == {
        "pay approval": '{"amount":0}',
        "pay approval#2": '{"amount":1}',
        "pay approval#3": '{"amount":2}',
    }
