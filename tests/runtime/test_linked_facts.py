"""The error and the cost of one model call name each other."""

from pathlib import Path
from typing import Any

import attrs

from cortex.agent.models.calls import ModelCalls
from cortex.agent.models.errors import ModelUnavailableError
from cortex.domain.failure import CallFailure
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.prices import LIST_PRICES
from cortex.domain.retry import CallRetry
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.calls.budget_guard import StoreBudgetGuard
from cortex.runtime.calls.fact_sink import FactSink
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.jobs.receipts import Receipts
from cortex.store import facts
from tests.support.records.factories import Bench
from tests.support.records.rows import new_id

ANSWER = ModelResponse(
    model="m",
    content=({"type": "text", "text": "hello"},),
    stop_reason="end_turn",
    usage=Usage(input_tokens=1, output_tokens=1),
    message_id="m1",
)


@attrs.define
class FailsOnce:
    """A model that breaks off its first answer."""

    calls: int = 0

    def provider_of(self, model: str) -> str:  # noqa: ARG002
        return "scripted"

    def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, **_: Any) -> ModelResponse:
        self.calls += 1
        if self.calls == 1:
            failure = CallFailure(
                model=request.model, host="h", type="overloaded_error", status=529
            )
            raise ModelUnavailableError(failure, "busy")
        return ANSWER


async def test_error_fact_names_the_booked_call(bench: Bench, tmp_path: Path) -> None:
    (claim,) = await bench.claimed()
    caller = Caller(
        lease=claim.lease,
        lineage_id=claim.lease.job_id,
        tenant=claim.tenant,
        agent_id=None,
        agent_version=None,
        config_id=None,
        key="turn-1",
        prices=LIST_PRICES,
        call_s=60.0,
        idle_s=60.0,
        connect_s=10.0,
        retry=CallRetry(base_s=0.001, cap_s=0.001, attempts=2),
    )
    pod_id = bench.pod.id
    receipts = Receipts(bench.port, workspaces=tmp_path, unix_ms=lambda: 1)
    calls = ModelCalls(
        client=FailsOnce(),
        breakers=BreakerRegistry(bench.port, pod_id=pod_id, rng=bench.rng),
        budget_guard=StoreBudgetGuard(
            bench.port,
            pod_id=pod_id,
            new_id=new_id,
            unsettled=PendingSettlements(bench.port),
            rng=bench.rng,
        ),
        facts=FactSink(bench.port, pod_id=pod_id, receipts=receipts),
        rng=bench.rng,
    )
    request = ModelRequest(model="m", messages=({"role": "user", "content": "hi"},), max_tokens=9)
    await calls.respond(request, caller)
    rows = await bench.port(facts.of_job, claim.lease.job_id)
    (error,) = [row for row in rows if row.type == "error"]
    failed, kept = [row for row in rows if row.type == "cost"]
    assert (failed.data["outcome"], kept.data["outcome"]) == ("failed", "kept")
    assert error.data["call_id"] == str(failed.call_id) != str(kept.call_id)
