"""Gates: requests to people, and the meaning of their decisions."""

import json
from typing import Any

import attrs
import pytest

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Risk
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import ApprovalExpiredError, DeniedError, DivergedError, InvalidValueError
from cortex.domain.job import StepKind
from cortex.domain.limits import ARGUMENTS
from cortex.durable.context import Context
from cortex.durable.gates import Decision, Gate, decided, frozen_arguments, refused
from cortex.testing.people import decided_on
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context
from tests.support.records.rows import new_id

JOB = new_id()
DETAIL = {"text": "hello", "amount": 12.5}


def a_request(arguments: Any = DETAIL, **fields: Any) -> ApprovalRequest:
    text, sha = frozen_arguments(arguments, what="arguments")
    defaults: dict[str, Any] = {
        "id": new_id(),
        "key": "publish",
        "tool": None,
        "arguments": text,
        "digest": sha,
        "said": None,
    }
    return ApprovalRequest(**attrs.asdict(Gate(), recurse=False) | defaults | fields)


REQUEST = a_request()


def wish(found: Any, request: ApprovalRequest = REQUEST) -> Suspended:
    """The suspension of a job that finds this decision."""
    with pytest.raises(Suspended) as caught:
        decided(request, found, job_id=JOB)
    assert caught.value.delay_s is None
    return caught.value


# --- what was found


def test_new_gate_makes_a_request() -> None:
    asked = wish(None)
    assert (asked.requests, asked.awaited) == ((REQUEST,), ())
    assert asked.waiting_on == f"approval:{REQUEST.id}"


def test_pending_request_is_awaited_and_not_repeated() -> None:
    earlier = a_request()
    found = decided_on(earlier, ApprovalStatus.PENDING, job_id=JOB)
    waits = wish(found)
    assert (waits.requests, waits.awaited) == ((), (earlier.id,))
    assert waits.waiting_on == f"approval:{earlier.id}"


@pytest.mark.parametrize("status", ApprovalStatus)
def test_decision_on_other_arguments_is_ignored(status: ApprovalStatus) -> None:
    other = decided_on(a_request({"text": "other"}), status, job_id=JOB)
    assert wish(other).requests == (REQUEST,)


@pytest.mark.parametrize("status", [s for s in ApprovalStatus if s is not ApprovalStatus.APPROVED])
def test_only_an_approval_of_an_earlier_job_counts(status: ApprovalStatus) -> None:
    found = decided_on(REQUEST, status, job_id=new_id())
    assert wish(found).requests == (REQUEST,)
    yes = decided_on(REQUEST, ApprovalStatus.APPROVED, job_id=new_id())
    assert decided(REQUEST, yes, job_id=JOB).is_approved


@pytest.mark.parametrize("less", [{"people": 1}, {"risk": Risk.HIGH}])
def test_earlier_approval_must_be_as_strict(less: dict[str, Any]) -> None:
    """The agent that continues may have stricter rules."""
    now = a_request(risk=Risk.CRITICAL, people=2)
    yes = decided_on(now, ApprovalStatus.APPROVED, job_id=new_id(), **less)
    assert wish(yes, now).requests == (now,)
    same = decided_on(now, ApprovalStatus.APPROVED, job_id=JOB, **less)
    assert decided(now, same, job_id=JOB).is_approved, "this job was asked so"


def test_cancelled_request_is_made_again() -> None:
    """Nobody can decide on it any more: to wait for it would be to wait for ever."""
    found = decided_on(REQUEST, ApprovalStatus.CANCELLED, job_id=JOB)
    assert wish(found).requests == (REQUEST,)


def test_expired_is_no_denial() -> None:
    with pytest.raises(ApprovalExpiredError, match="no decision on publish in time"):
        decided(REQUEST, decided_on(REQUEST, ApprovalStatus.EXPIRED, job_id=JOB), job_id=JOB)


@pytest.mark.parametrize("status", [ApprovalStatus.APPROVED, ApprovalStatus.DENIED])
def test_unedited_decision_keeps_the_arguments(status: ApprovalStatus) -> None:
    found = decided_on(REQUEST, status, job_id=JOB, reason="so it is")
    decision = decided(REQUEST, found, job_id=JOB)
    assert decision.is_approved is (status is ApprovalStatus.APPROVED)
    assert (decision.by, decision.reason, decision.arguments) == ("test", "so it is", DETAIL)
    assert not decision.was_edited
    stored = decision.to_json()
    assert "arguments" not in stored
    assert Decision.from_json(stored, asked=DETAIL) == decision


def test_edited_decision_round_trips() -> None:
    edited = {"text": "hello", "amount": 10}
    found = decided_on(REQUEST, ApprovalStatus.APPROVED, job_id=JOB, edited=edited)
    decision = decided(REQUEST, found, job_id=JOB)
    assert (decision.arguments, decision.was_edited) == (edited, True)
    assert Decision.from_json(decision.to_json(), asked=DETAIL) == decision


def test_denial_names_person_and_reason() -> None:
    found = decided_on(REQUEST, ApprovalStatus.DENIED, job_id=JOB, reason="too dear")
    error = refused(decided(REQUEST, found, job_id=JOB), "pay")
    assert isinstance(error, DeniedError)
    assert (error.message, error.by, error.reason) == (
        "pay was denied by test: too dear",
        "test",
        "too dear",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": float("nan")},
        {"x": "a\0b"},
        {"x": "\ud800"},
        {"x": object()},
        {"x": "x" * ARGUMENTS.bytes_max},
    ],
)
def test_unstorable_arguments_are_not_asked_about(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="arguments of pay"):
        frozen_arguments(arguments, what="arguments of pay")


# --- a job's own gate


def attempt(record: Record, gateway: LedgerDesk) -> Context:
    return a_context(record, a_claim(), gateway=gateway)


async def asked_by(ctx: Context, *names: str, **terms: Any) -> Suspended:
    """The suspension of a job that asks for these gates at once."""
    with pytest.raises(Suspended) as caught:
        await ctx.gather(*(ctx.approve(name, detail=DETAIL, **terms) for name in names))
    return caught.value


async def test_a_gate_asks_once_and_its_decision_is_a_step() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    (request,) = (await asked_by(ctx, "publish", risk="CRITICAL", reason="money")).requests
    assert (request.key, request.tool, request.risk) == ("publish", None, Risk.CRITICAL)
    assert (request.people, request.policy) == (2, "money")
    assert record.steps == []
    gateway.decided["publish"] = decided_on(request, ApprovalStatus.PENDING, job_id=ctx.job_id)
    assert (await asked_by(ctx_again(ctx, record, gateway), "publish")).awaited == (request.id,)
    yes = decided_on(request, ApprovalStatus.APPROVED, job_id=ctx.job_id)
    gateway.decided["publish"] = yes
    decision = await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)
    assert (decision.is_approved, record.keys) == (True, ["publish"])
    gateway.decided.clear()
    assert await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL) == decision


def ctx_again(ctx: Context, record: Record, gateway: LedgerDesk) -> Context:
    """The next attempt of the same job."""
    return a_context(record, ctx._attempt.claim, gateway=gateway)


async def test_gates_at_once_are_asked_at_once() -> None:
    names = [f"gate {number}" for number in range(5)]
    asked = await asked_by(attempt(Record(), LedgerDesk()), *names)
    assert sorted(request.key for request in asked.requests) == names


async def test_decided_gate_is_recorded_while_another_waits() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    first, second = sorted(
        (await asked_by(ctx, "a", "b")).requests, key=lambda request: request.key
    )
    gateway.decided["a"] = decided_on(first, ApprovalStatus.APPROVED, job_id=ctx.job_id)
    gateway.decided["b"] = decided_on(second, ApprovalStatus.PENDING, job_id=ctx.job_id)
    waits = await asked_by(ctx_again(ctx, record, gateway), "a", "b")
    assert (waits.requests, waits.awaited) == ((), (second.id,))
    assert record.keys == ["a"]


async def test_other_details_than_those_decided_on_diverge() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    (request,) = (await asked_by(ctx, "publish")).requests
    gateway.decided["publish"] = decided_on(request, ApprovalStatus.APPROVED, job_id=ctx.job_id)
    await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)
    with pytest.raises(DivergedError):
        await ctx_again(ctx, record, gateway).approve("publish", detail={"text": "other"})


async def test_a_decision_that_a_newer_release_recorded_diverges() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    (request,) = (await asked_by(ctx, "publish")).requests
    gateway.decided["publish"] = decided_on(request, ApprovalStatus.APPROVED, job_id=ctx.job_id)
    await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)
    (step,) = record.steps
    newer = json.dumps(json.loads(step.output or "") | {"quorum": 3})
    record.steps = [attrs.evolve(step, output=newer)]
    again = ctx_again(ctx, record, gateway)
    with pytest.raises(DivergedError, match=r"'publish' cannot be read .*quorum") as caught:
        await again.approve("publish", detail=DETAIL)
    assert caught.value.is_clean


async def test_a_step_of_another_kind_is_no_decision() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    (request,) = (await asked_by(ctx, "publish")).requests
    gateway.decided["publish"] = decided_on(request, ApprovalStatus.APPROVED, job_id=ctx.job_id)
    await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)
    (step,) = record.steps
    record.steps = [attrs.evolve(step, kind=StepKind.STEP)]
    with pytest.raises(DivergedError, match="recorded as step, not as a decision"):
        await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)


async def test_a_denied_gate_raises_on_every_attempt() -> None:
    record, gateway = Record(), LedgerDesk()
    ctx = attempt(record, gateway)
    (request,) = (await asked_by(ctx, "publish")).requests
    gateway.decided["publish"] = decided_on(request, ApprovalStatus.DENIED, job_id=ctx.job_id)
    for _ in range(2):
        with pytest.raises(DeniedError, match="publish was denied by test"):
            await ctx_again(ctx, record, gateway).approve("publish", detail=DETAIL)
    assert record.keys == ["publish"]
