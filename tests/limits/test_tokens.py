"""Limits of tokens per time: room is taken before a call, and what it did not use comes back."""

from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import pytest

from cortex.domain.budget import Estimate
from cortex.domain.job import Claim
from cortex.domain.job_limits import Rate
from cortex.store import budgets, retries
from cortex.store.budgets import Bill, BudgetCall, BudgetVerdict
from tests.limits.conftest import TYPE, Stage
from tests.support.at_once import at_once
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.postgres import sql

Ask = Callable[..., BudgetVerdict]
NAME = f"{TYPE}:tokens/minute"


def a_call(stage: Stage, claim: Claim, tokens: int, model: str = "opus") -> BudgetCall:
    return BudgetCall(
        id=new_id(),
        lease=claim.lease,
        pod_id=stage.pod_id,
        lineage_id=claim.lease.job_id,
        tenant=claim.tenant,
        agent_id=None,
        agent_version=None,
        step="1 model",
        model=model,
        estimate=Estimate(tokens=tokens, input_tokens=10, cost_usd=None, input_usd=None),
    )


def bill(call: BudgetCall, tokens: int) -> Bill:
    return Bill(
        call_id=call.id, job_id=call.lease.job_id, tokens=tokens, cost_usd=Decimal(0), data={}
    )


def counted(stage: Stage) -> dict[str, int]:
    rows = sql(stage.dsn, "SELECT key, sum(used)::int AS n FROM cortex_worker.limit_use GROUP BY 1")
    return {row["key"]: row["n"] for row in rows}


def test_calls_take_room_of_their_model_and_return_what_they_did_not_use(stage: Stage) -> None:
    stage.declare(Rate(1_000, per="minute", unit="tokens", key="model"))
    stage.submit()
    (claim,) = stage.claim()
    first = a_call(stage, claim, 900)
    assert stage.call(budgets.reserve, first).word == "granted"
    refused = stage.call(budgets.reserve, a_call(stage, claim, 200))
    assert (refused.word, refused.budget, refused.limit_key) == ("limit", f"{NAME}:model", "opus")
    assert (refused.spent, refused.limit) == (Decimal(900), Decimal(1_000))
    assert stage.call(budgets.reserve, a_call(stage, claim, 200, "haiku")).word == "granted"
    for _ in range(2):  # booked once
        stage.call(budgets.settle, [bill(first, 100)])
    assert counted(stage) == {"opus": 100, "haiku": 200}
    assert stage.call(budgets.reserve, a_call(stage, claim, 900)).word == "granted"


def test_tokens_count_for_the_span_and_not_longer(stage: Stage) -> None:
    stage.declare(Rate(1_000, per="minute", unit="tokens", key="tenant"))
    stage.submit(tenant="acme")
    (claim,) = stage.claim()
    call = a_call(stage, claim, 1_000)
    assert stage.call(budgets.reserve, call).word == "granted"
    stage.call(budgets.settle, [bill(call, 1_000)])
    for at_s, word in ((30.0, "limit"), (58.9, "limit"), (62.1, "granted")):
        move_clock(stage.dsn, at_s)
        verdict = stage.call(budgets.reserve, a_call(stage, claim, 1))
        assert verdict.word == word
        if verdict.wait_s is not None:
            assert at_s + verdict.wait_s <= 62.1


def test_larger_call_than_the_limit_runs_alone(stage: Stage) -> None:
    stage.declare(Rate(10, per="minute", unit="tokens"))
    stage.submit()
    (claim,) = stage.claim()
    assert stage.call(budgets.reserve, a_call(stage, claim, 50)).word == "granted"
    assert stage.call(budgets.reserve, a_call(stage, claim, 1)).word == "limit"


def test_calls_at_once_take_no_more_than_the_room(stage: Stage) -> None:
    stage.declare(Rate(1_000, per="day", unit="tokens"))
    stage.submit()
    (claim,) = stage.claim()

    def asked(call: BudgetCall) -> Callable[..., object]:
        return lambda db: budgets.reserve(db, call)

    calls = [a_call(stage, claim, 300) for _ in range(6)]
    verdicts = at_once(stage.dsn, *[asked(call) for call in calls])  # type: ignore[arg-type]
    words = sorted(each.word for each in verdicts if isinstance(each, BudgetVerdict))
    assert words == ["granted"] * 3 + ["limit"] * 3
    assert counted(stage) == {"": 900}


def test_job_that_waits_for_tokens_goes_on_when_its_time_has_come(stage: Stage) -> None:
    stage.declare(Rate(1, per="minute", unit="tokens"))
    ids = [stage.submit() for _ in range(30)]
    claims = stage.claim()
    assert len(claims) == 30, "no limit decides when they begin"
    for claim in claims:
        stage.suspend(claim, delay_s=10.0, waiting_on=f"limit:{NAME}")
    assert stage.call(retries.due).count == 0
    move_clock(stage.dsn, 20.0)
    assert stage.call(retries.due).count == 20
    assert _status(stage, ids[0]) == "RETRY"


@pytest.mark.parametrize("change", [(), (Rate(10, per="minute", unit="tokens"),)])
def test_limit_is_changed_while_a_call_is_in_flight(stage: Stage, change: tuple[Rate, ...]) -> None:
    stage.declare(Rate(100, per="hour", unit="tokens"))
    stage.submit()
    (claim,) = stage.claim()
    call = a_call(stage, claim, 90)
    stage.call(budgets.reserve, call)
    stage.declare(*change)
    assert stage.call(budgets.settle, [bill(call, 50)]) == 1
    assert stage.call(budgets.reserve, a_call(stage, claim, 90)).word == "granted"


def _status(stage: Stage, job_id: UUID) -> str:
    return str(job_row(stage.dsn, job_id)["status"])
