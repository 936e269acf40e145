"""Calls decided by people: which run, and the result for the model on every attempt."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from cortex.agent.loop import run_agent
from cortex.agent.spec import AgentSpec
from cortex.agent.tools.tool import AnyTool, tool
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Decided, Risk
from cortex.domain.canonical import canonical, digest
from cortex.domain.control_flow import Suspended, Unfit
from cortex.domain.errors import ApprovalExpiredError, MisfitKind
from cortex.domain.job import Past
from cortex.domain.model import Capabilities, ModelRequest
from cortex.durable.calls import Caller
from cortex.durable.journal import NO_PAST
from cortex.durable.step_outcome import StepOutcome
from tests.support.agent_turns import Script, calls, says
from tests.support.records.factories import LedgerDesk, Record, a_claim, a_context
from tests.support.records.rows import new_id

ASKED = {"customer": "c", "amount": 12.4}
EDITED = '{"amount":9,"customer":"d"}'
CLAIM = a_claim()
made: list[tuple[str, float]] = []


@tool(effect=True, idempotent=True, local=True, approve=True)
def refund(customer: str, amount: float) -> str:
    """Pay money back."""
    made.append((customer, amount))
    return "done"


@attrs.frozen
class Money:
    """An amount that is more than nothing."""

    amount: float = attrs.field(validator=attrs.validators.gt(0))


@tool(name="refund", effect=True, idempotent=True, local=True, approve=True)
def refund_of_next_release(customer: str, amount: float, currency: str) -> str:
    """Pay money back, in a currency."""
    made.append((f"{customer} {currency}", amount))
    return "done"


@tool(name="refund", effect=True, idempotent=True, local=True, approve=True)
def refund_of_money(customer: str, money: Money) -> str:
    """Pay money back, if it is any."""
    made.append((customer, money.amount))
    return "done"


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


def decided(status: str, arguments: dict[str, Any] = ASKED) -> Decided:
    text = canonical(arguments)
    return Decided(
        id=new_id(),
        job_id=CLAIM.lease.job_id,
        status=ApprovalStatus(status),
        arguments=text,
        digest=digest(text),
        asked_digest=digest(canonical(ASKED)),
        risk=Risk.HIGH,
        people=1,
        by=None if status == "EXPIRED" else "ana",
        reason="not this one" if status == "DENIED" else None,
        at=datetime(2026, 1, 2, tzinfo=UTC),
        waited_s=1.0,
    )


@attrs.define
class Cut(Script):
    """A model that receives its input, and then the connection is cut."""

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        await super().respond(request, caller)
        raise ConnectionResetError("cut")


@attrs.frozen
class Attempts:
    """Attempts of one job with one record; the model calls the tool once."""

    folder: Path
    gateway: LedgerDesk = attrs.Factory(LedgerDesk)
    record: Record = attrs.Factory(Record)

    async def run(
        self, script: Script, release: AnyTool = refund, *, has_asked: bool = False
    ) -> list[str]:
        """Run one attempt to its end; return the last input of the model."""
        spec = AgentSpec(name="a", model="m", system="s", tools=("refund",))
        ctx = a_context(
            self.record,
            CLAIM,
            past=Past(questions=("1 refund approval",)) if has_asked else NO_PAST,
            models=script,
            tools=Toolbox({"refund": release}),
            gateway=self.gateway,
            workspaces=self.folder,
        )
        await run_agent(ctx, spec, prompt="do it", folder=None)
        return script.last_results

    async def asked(
        self, arguments: dict[str, Any] = ASKED, release: AnyTool = refund
    ) -> ApprovalRequest:
        """Run the first attempt, which asks; return its request."""
        with pytest.raises(Suspended) as caught:
            await self.run(Script([calls(("refund", arguments))]), release)
        (request,) = caught.value.requests
        assert caught.value.waiting_on == f"approval:{request.id}"
        return request


async def test_approved_tool_does_not_run_before_the_decision(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    request = await attempts.asked()
    assert made == []
    assert attempts.gateway.intents == []
    assert (request.tool, request.arguments) == ("refund", canonical(ASKED))
    assert request.digest == digest(canonical(ASKED))
    assert request.schema == refund.input_schema


@pytest.mark.parametrize(
    "found, ran, output",
    [
        (decided("APPROVED"), [("c", 12.4)], "done"),
        (
            decided("APPROVED", {"customer": "d", "amount": 9}),
            [("d", 9)],
            'done\n\n[ana changed the arguments before the call to {"amount":9,"customer":"d"}]',
        ),
        (decided("DENIED"), [], "refund was denied by ana: not this one"),
    ],
    ids=["approved", "edited", "denied"],
)
async def test_decision_determines_the_call_and_the_result_shown(
    tmp_path: Path, found: Decided, ran: list[tuple[str, float]], output: str
) -> None:
    """It receives the same words again when the attempt that received them was cut off."""
    attempts = Attempts(tmp_path)
    request = await attempts.asked()
    attempts.gateway.decided[request.key] = found
    cut = Cut([says("lost")])
    with pytest.raises(ConnectionResetError):
        await attempts.run(cut)
    attempts.gateway.decided.clear()  # from here on it is in the record
    assert cut.last_results == await attempts.run(Script([says("ok")])) == [output]
    assert made == ran
    approvals = {intent.approval_id for intent in attempts.gateway.intents}
    assert approvals == ({found.id} if ran else set())


async def test_expired_approval_runs_nothing_and_fails_the_job(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    request = await attempts.asked()
    attempts.gateway.decided[request.key] = decided("EXPIRED")
    with pytest.raises(ApprovalExpiredError):
        await attempts.run(Script([says("lost")]))
    assert made == []


@pytest.mark.parametrize(
    "found", [decided("APPROVED"), decided("APPROVED", {**ASKED, "amount": 9})]
)
async def test_approved_call_waits_for_code_that_accepts_its_arguments(
    tmp_path: Path, found: Decided
) -> None:
    """The model would hear of a misfit that it did not cause, and the approval would be void."""
    attempts = Attempts(tmp_path)
    request = await attempts.asked()
    attempts.gateway.decided[request.key] = found
    with pytest.raises(Unfit) as caught:
        await attempts.run(Script([says("ok")]), refund_of_next_release, has_asked=True)
    assert caught.value.kind is MisfitKind.TOOL
    assert "this pod's tool 'refund': currency is missing" in caught.value.reason
    assert (made, attempts.gateway.intents) == ([], [])
    assert await attempts.run(Script([says("ok")]), has_asked=True)
    assert len(made) == 1


async def test_an_edited_call_that_a_class_refuses_is_an_error_of_the_tool(tmp_path: Path) -> None:
    """Its arguments fit the tool's schema: no other code would take them."""
    asked = {"customer": "c", "money": {"amount": 1}}
    attempts = Attempts(tmp_path)
    request = await attempts.asked(asked, refund_of_money)
    edited = decided("APPROVED", {"customer": "c", "money": {"amount": 0}})
    attempts.gateway.decided[request.key] = attrs.evolve(edited, asked_digest=request.digest)
    results = await attempts.run(Script([says("ok")]), refund_of_money, has_asked=True)
    assert "money is refused" in results[0]
    assert made == []
