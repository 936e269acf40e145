"""Calls in batches: gathered, sent once, found again after a loss, and booked at half the price."""

import json
from collections.abc import Callable
from decimal import Decimal
from uuid import UUID

import attrs
import pytest

from cortex.domain.budget import Budget, Period, Scope, Unit
from cortex.domain.control_flow import Suspended
from cortex.domain.file import File
from cortex.domain.model import ModelResponse
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from cortex.store import budgets, files, jobs, retries, tasks
from tests.batches.conftest import MODEL, Killed, Stage
from tests.options.files import png
from tests.support.people import user
from tests.support.servers.postgres import sql

WORDS = {"expired": "expired", "canceled": "cancelled", "overloaded_error": "overloaded_error"}
POINTS = (
    "after_batch_gather",
    "before_batch_sent",
    "after_batch_sent",
    "after_batch_look",
    "before_batch_results",
    "after_batch_results",
    "before_batch_end",
    "after_batch_end",
    "before_batch_wake",
)


async def test_calls_of_many_jobs_are_one_batch_at_half_the_price(stage: Stage) -> None:
    one, two = await stage.waiting("a", "b")
    await stage.tick(later=False)
    assert stage.served.count == 0, "more calls may come"
    await stage.until_over()
    assert (stage.served.count, sorted(stage.paid)) == (1, ["a", "b"])
    assert stage.has_task(one)
    assert stage.has_task(two)
    (cost,) = await stage.costs(one)
    assert cost[0] == "kept"
    (claim, _) = await stage.bench.claim(2)
    outcome = await stage.ask(claim, "a" if claim.lease.job_id == one else "b")
    assert ModelResponse.from_json(outcome.value).text in ("heard a", "heard b")
    assert outcome.usage is not None
    assert outcome.usage.service_tier == "batch"
    assert outcome.cost_usd == cost[1]
    assert len(stage.paid) == 2


@pytest.mark.parametrize("point", POINTS)
async def test_killed_runner_leaves_calls_that_are_paid_once(
    stage: Stage, kill_at: Callable[[str], None], point: str
) -> None:
    job_ids = await stage.waiting("a", "b")
    kill_at(point)
    with pytest.raises(Killed):
        await stage.until_woken()
    stage.restart()
    await stage.until_over()
    await stage.tick()
    assert sorted(stage.paid) == ["a", "b"]
    assert [await stage.costs(each) for each in job_ids] == [
        [("kept", row["cost_usd"])] for row in stage.rows()
    ]
    assert all(map(stage.has_task, job_ids))
    assert sql(stage.dsn, "SELECT FROM cortex.reservation") == []


async def test_batch_whose_creation_was_not_answered_is_found(stage: Stage) -> None:
    await stage.waiting("a")
    stage.served.drops = 1
    await stage.tick()
    assert stage.states() == ["SENDING"]
    stage.served.takes_s = 60.0
    other = await stage.models.batches("anthropic").create(
        {"others": {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "o"}]}},
        within_s=5.0,
    )
    assert other.call_count == 1, "as many as the lost one, and not over"
    await stage.until_over()
    assert (stage.states(), stage.paid.count("a")) == (["ENDED"], 1)


async def test_while_a_like_batch_is_open_nothing_is_sent_again(stage: Stage) -> None:
    await stage.waiting("a")
    stage.served.drops, stage.served.takes_s = 1, 3_600.0
    for _ in range(3):
        await stage.tick()
    assert (stage.states(), stage.served.count) == (["SENDING"], 1)


@pytest.mark.parametrize(
    "refusal, state",
    [
        ((529, "overloaded_error"), "WAITING"),
        ((401, "authentication_error"), "FAILED"),
        ((413, "request_too_large"), "FAILED"),
    ],
)
async def test_refused_batch_waits_or_is_called_directly(
    stage: Stage, refusal: tuple[int, str], state: str
) -> None:
    await stage.waiting("a")
    stage.served.refusals.append(refusal)
    await stage.tick()
    assert (stage.states(), [row["state"] for row in stage.rows()]) == (["UNSENT"], [state])
    if state == "WAITING":
        await stage.until_over()
        assert stage.paid == ["a"]
        return
    (claim,) = await stage.bench.claim()
    outcome = await stage.ask(claim, "a")
    assert ModelResponse.from_json(outcome.value).usage.service_tier == ""
    assert [each for each, _ in await stage.costs(claim.lease.job_id)] == ["failed", "kept"]


@pytest.mark.parametrize("kind", WORDS)
async def test_call_without_an_answer_is_made_directly_and_costs_nothing(
    stage: Stage, kind: str
) -> None:
    (job_id,) = await stage.waiting(f"refuse {kind}")
    await stage.until_over()
    assert await stage.costs(job_id) == [("failed", Decimal(0))]
    (row,) = stage.rows()
    assert row["state"] == "FAILED"
    assert WORDS[kind] in row["failure"]


async def test_call_of_a_cancelled_job_is_not_sent(stage: Stage) -> None:
    job_id, other = await stage.waiting("a", "b")
    await cancel(stage, job_id)
    await stage.until_over()
    assert stage.paid == ["b"]
    assert await stage.costs(job_id) == [("cancelled", Decimal(0))]
    assert stage.has_task(other)


async def test_result_of_a_job_that_ended_meanwhile_is_booked(stage: Stage) -> None:
    (job_id,) = await stage.waiting("a")
    await stage.tick()
    await cancel(stage, job_id)
    await stage.until_over()
    assert (await stage.costs(job_id))[0][0] == "kept"
    assert stage.paid == ["a"]


async def test_other_request_of_the_same_step_gets_an_answer_of_its_own(stage: Stage) -> None:
    (job_id,) = await stage.waiting("a")
    await stage.tick()
    sql(
        stage.dsn,
        "UPDATE cortex.job_record SET next_retry_at = cortex.now() WHERE id = $1",
        job_id,
    )
    await wake_by_time(stage)
    (claim,) = await stage.bench.claim()
    await stage.suspended(claim, "another")
    await stage.until_over()
    (claim,) = await stage.bench.claim()
    outcome = await stage.ask(claim, "another")
    assert ModelResponse.from_json(outcome.value).text == "heard another"
    assert sorted(stage.paid) == ["a", "another"]
    assert [each for each, _ in await stage.costs(job_id)] == ["kept", "kept"]


async def test_waiting_call_holds_room_in_budgets(stage: Stage) -> None:
    run = Budget(scope=Scope.TENANT, subject="default", unit=Unit.USD, period=Period.RUN)
    await stage.bench.port(budgets.put, run, limit=Decimal(5), by=user("ana"), reason="test")
    await stage.waiting("a")
    query = "SELECT spent, reserved FROM cortex.budget_use"
    (held,) = sql(stage.dsn, query)
    assert held["reserved"] > 0
    await stage.bench.port(budgets.sweep, limit=100)
    assert sql(stage.dsn, query) == [held], "its attempt is over, and the room is still taken"
    await stage.until_over()
    (row,) = stage.rows()
    (after,) = sql(stage.dsn, query)
    assert (after["spent"], after["reserved"]) == (row["cost_usd"], 0)
    usage = attrs.evolve(Usage.from_json(json.loads(row["usage"])), service_tier="")
    full = LIST_PRICES.cost(MODEL, usage)
    assert (row["cost_usd"] * 2, row["cost_usd"] > 0) == (full, True)


async def test_taken_answers_wake_nobody_and_are_deleted_with_their_step(stage: Stage) -> None:
    await stage.waiting("a")
    await stage.until_over()
    (claim,) = await stage.bench.claim()
    await stage.ask(claim, "a")
    await stage.suspended(claim, "next", key="2")
    await stage.tick(later=False)
    assert not stage.has_task(claim.lease.job_id)
    assert len(stage.rows()) == 2
    sql(
        stage.dsn,
        "INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at, "
        "finished_at) VALUES ($1, 1, 1, 'model', '1', '0'::bytea, now(), now())",
        claim.lease.job_id,
    )
    await stage.tick(later=False)
    assert [row["step"] for row in stage.rows()] == ["2"]


async def test_batches_of_endpoints_that_a_process_cannot_reach_are_left_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.waiting("a")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name)
    await stage.tick()
    assert [row["state"] for row in stage.rows()] == ["WAITING"]


async def test_request_with_a_secret_is_made_directly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.agent.models.batched.secret_in", lambda _: "API_KEY")
    (claim,) = await stage.bench.claimed()
    outcome = await stage.ask(claim, "a")
    assert ModelResponse.from_json(outcome.value).text == "heard a"
    assert stage.rows() == []


async def test_files_are_put_in_and_a_missing_one_fails_its_own_call_only(stage: Stage) -> None:
    photo = File(png(40, 30))
    claim, other = await stage.bench.claimed(2)
    stored = photo.stored
    assert photo.content is not None
    await stage.bench.port(
        files.keep,
        lineage_id=claim.lease.job_id,
        sha256=stored.sha256,
        media_type=stored.media_type,
        content=photo.content,
    )
    for each in (claim, other):
        await stage.suspended(each, [{"type": "text", "text": "look"}, stored.block()])
    await stage.until_over()
    found = {row["job_id"]: row for row in stage.rows()}
    assert found[claim.lease.job_id]["state"] == "SUCCEEDED"
    assert "is not in the record of this job" in found[other.lease.job_id]["failure"]
    assert stage.paid == ["look"]


async def test_attempt_that_lost_its_job_adds_nothing(stage: Stage) -> None:
    (claim,) = await stage.bench.claimed()
    sql(stage.dsn, "UPDATE cortex_worker.task SET attempt = attempt + 1")
    with pytest.raises(BaseException) as raised:  # noqa: PT011 -- LeaseLost is no Exception
        await stage.ask(claim, "a")
    assert not isinstance(raised.value, Suspended)
    assert stage.rows() == []


async def cancel(stage: Stage, job_id: UUID) -> None:
    await stage.bench.port(jobs.cancel, job_id, by="ana", reason="not needed")


async def wake_by_time(stage: Stage) -> None:
    await stage.bench.port(retries.due)
    await stage.bench.port(tasks.promote)
