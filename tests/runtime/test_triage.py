"""The triage: recovered jobs resume once, by themselves; the others are reported."""

from collections.abc import MutableMapping
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.clock import Chance
from cortex.durable.context import Context
from cortex.runtime.maintenance import triage as service
from cortex.runtime.maintenance.triage import CALM_S, Triage
from cortex.store import dead_letters, timeouts
from cortex.store.dead_letters import Resubmission
from cortex.store.triage import Triaged
from cortex.store.triage import triage as triage_once
from tests.support.eventually import eventually_async
from tests.support.holder import holding, holding_task
from tests.support.records.dead_letters import (
    cancelling,
    fail,
    letter,
    lifecycle,
    make_large,
    set_breaker,
)
from tests.support.records.factories import Bench, a_lease
from tests.support.records.receipts import a_change, a_receipt, a_work_tree, an_interruption
from tests.support.records.rows import (
    assert_one_truth,
    hold_turns,
    job_count,
    job_row,
    move_clock,
    new_id,
    seeded_random,
    steps,
)
from tests.support.servers.postgres import sql

Lines = list[MutableMapping[str, Any]]
OUTAGE: dict[str, Any] = {
    "error_class": "TRANSIENT_APP",
    "error_code": "overloaded",
    "error_source": "llm:x",
}

WAITS_FOR_ORIGIN = """
    CREATE FUNCTION cortex.test_waits_for_origin() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM set_config('lock_timeout', '0', true);
        PERFORM FROM cortex.job_record WHERE id = NEW.origin_id FOR SHARE;
        RETURN NEW;
    END $$
"""
WAIT_FOR_ORIGIN = """
    CREATE TRIGGER test_waits_for_origin BEFORE INSERT ON cortex.job_record
    FOR EACH ROW EXECUTE FUNCTION cortex.test_waits_for_origin()
"""


def a_triage(bench: Bench) -> Triage:
    chance = Chance(seeded_random(), lambda: 1_700_000_000_000)
    return Triage(bench.port, rng=bench.rng, chance=chance)


def states(dsn: str, ids: list[UUID]) -> list[str]:
    return [letter(dsn, each)["state"] for each in ids]


async def test_triage_retries_a_letter_once_its_dependency_is_back(
    bench: Bench, database: str
) -> None:
    set_breaker(database, "llm:x", "OPEN")
    (job_id,) = fail(database, steps=2, **OUTAGE)
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [job_id]) == ["OPEN"]
    set_breaker(database, "llm:x", "CLOSED")
    await a_triage(bench).tick(TickBudget())
    found = letter(database, job_id)
    assert (found["state"], found["is_automatic"]) == ("RETRIED", True)
    assert (found["resolved_by"], found["reason"]) == ("triage", "llm:x answers again")
    heir = job_row(database, found["retried_as"])
    assert (heir["origin_id"], heir["task_state"]) == (job_id, "READY")
    assert len(steps(database, heir["id"])) == 2
    ((subtype, data),) = lifecycle(database, job_id)
    assert (subtype, data["by"]) == ("dead_letter_retried", "triage")
    assert_one_truth(database)


async def test_one_letter_probes_a_half_open_breaker_that_no_job_waits_for(
    bench: Bench, database: str
) -> None:
    set_breaker(database, "llm:x", "HALF_OPEN")
    ids = fail(database, count=3, **OUTAGE)
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    assert sorted(states(database, ids)) == ["OPEN", "OPEN", "RETRIED"]
    (probe,) = (each for each in ids if states(database, [each]) == ["RETRIED"])
    found = letter(database, probe)
    assert found["reason"] == "probes llm:x"
    sql(
        database,
        "UPDATE cortex.breaker SET probe_by = cortex.uuid7(), "
        "probe_until = cortex.now() + interval '30 s'",
    )
    await a_triage(bench).tick(TickBudget())
    assert sorted(states(database, ids)) == ["OPEN", "OPEN", "RETRIED"], "it is being probed"


async def test_triage_waits_until_a_failure_is_calm(bench: Bench, database: str) -> None:
    (job_id,) = fail(database, **OUTAGE)
    move_clock(database, CALM_S - 5)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [job_id]) == ["OPEN"]
    move_clock(database, CALM_S + 5)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [job_id]) == ["RETRIED"]


async def test_triage_retries_a_lineage_only_once(bench: Bench, database: str) -> None:
    (first,) = fail(database, **OUTAGE)
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    second = letter(database, first)["retried_as"]
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", second)
    sql(
        database,
        "UPDATE cortex.job_record SET status = 'FAILED', error_message = 'again', "
        "error_class = 'TRANSIENT_APP', error_source = 'llm:x' WHERE id = $1",
        second,
    )
    move_clock(database, 3 * CALM_S)
    for _ in range(2):
        await a_triage(bench).tick(TickBudget())
    found = letter(database, second)
    assert (found["state"], found["triaged_at"] is not None) == ("OPEN", True)
    assert job_count(database, "origin_id IS NOT NULL") == 1


async def test_an_open_breaker_does_not_hold_up_the_others(bench: Bench, database: str) -> None:
    set_breaker(database, "llm:a", "OPEN")
    waiting = fail(database, service.RETRIED_MAX + 5, **OUTAGE | {"error_source": "llm:a"})
    (ready,) = fail(database, **OUTAGE | {"error_source": "llm:b"})
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [ready]) == ["RETRIED"]
    assert set(states(database, waiting)) == {"OPEN"}


async def test_triage_ticks_again_when_a_letter_becomes_due(bench: Bench, database: str) -> None:
    """That a breaker closes is notified; the letter may be too young then."""
    assert (await a_triage(bench).tick(TickBudget())).next_s is None
    fail(database, **OUTAGE)
    move_clock(database, CALM_S - 7)
    result = await a_triage(bench).tick(TickBudget())
    assert result.next_s is not None
    assert 5 < result.next_s <= 7
    set_breaker(database, "llm:x", "OPEN")
    opened = "UPDATE cortex.breaker SET open_until = cortex.now() + interval '20 s'"
    sql(database, opened)
    result = await a_triage(bench).tick(TickBudget())
    assert result.next_s is not None
    assert 18 < result.next_s <= 20
    move_clock(database, CALM_S + 15)
    assert (await a_triage(bench).tick(TickBudget())).items == 1, "a probe"


async def test_a_recovered_provider_is_not_run_over(bench: Bench, database: str) -> None:
    fail(database, 3 * service.RETRIED_MAX, **OUTAGE)
    move_clock(database, CALM_S + 1)
    for passes in (1, 2):
        await a_triage(bench).tick(TickBudget())
        assert job_count(database, "origin_id IS NOT NULL") == passes * service.RETRIED_MAX


async def test_triage_escalates_configuration_errors_and_archives_unreadable_jobs(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    denied: dict[str, Any] = {
        "error_class": "PERMANENT",
        "error_code": "forbidden",
        "error_message": "no key",
    }
    unreadable: dict[str, Any] = {
        "error_code": "invalid_value",
        "error_message": "payload of 'x' lacks url",
    }
    wrong = fail(database, 2, **denied)
    (lost,) = fail(database, error_class="PERMANENT", **unreadable)
    (unclear,) = fail(database)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [*wrong, lost, unclear]) == [
        *("ESCALATED", "ESCALATED", "ARCHIVED", "OPEN")
    ]
    assert [subtype for subtype, _ in lifecycle(database, wrong[0])] == ["dead_letter_escalated"]
    assert [subtype for subtype, _ in lifecycle(database, lost)] == ["dead_letter_archived"]
    assert lifecycle(database, unclear) == []
    assert letter(database, wrong[0])["reason"] == "it fails until the credentials are fixed"
    assert letter(database, lost)["reason"].startswith("no handler could read it: payload")
    assert letter(database, lost)["resolved_at"] is None, "a person may still retry it"
    (warning,) = [line for line in log_lines if line["log_level"] == "warning"]
    assert warning["letters"] == 2
    assert letter(database, wrong[0])["fingerprint"] in warning["hint"]
    log_lines.clear()
    await a_triage(bench).tick(TickBudget())
    assert log_lines == []
    assert job_count(database, "origin_id IS NOT NULL") == 0


async def test_a_failure_that_asked_for_a_person_gets_one(bench: Bench, database: str) -> None:
    (job_id,) = fail(database, error_class="PERMANENT", error_code="suspended")
    fact = "INSERT INTO cortex.fact (type, subtype, job_id, data) VALUES ('error', 'x', $1, $2)"
    sql(database, fact, job_id, '{"escalated": true}')
    await a_triage(bench).tick(TickBudget())
    assert states(database, [job_id]) == ["ESCALATED"]


async def test_an_escalated_letter_is_a_persons_to_retry(bench: Bench, database: str) -> None:
    (job_id,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    await a_triage(bench).tick(TickBudget())
    wanted = [Resubmission(job_id=job_id, new_id=new_id())]
    (done,) = await bench.port(dead_letters.resubmit, wanted, by="ana", reason="new key")
    assert done.error is None
    assert letter(database, job_id)["is_automatic"] is False


async def test_timeout_with_half_done_work_is_left_to_a_person(bench: Bench, database: str) -> None:
    clean, tree, file = (fail(database, **OUTAGE)[0] for _ in range(3))
    left: dict[UUID, dict[str, Any]] = {
        clean: {"work_trees": [a_work_tree()]},
        tree: {"work_trees": [a_work_tree(a_change())]},
        file: {"problem": "too many files"},
    }
    receipts = [
        a_receipt(interruption=an_interruption(lease=a_lease(job_id=job_id)), **fields)
        for job_id, fields in left.items()
    ]
    await bench.port(timeouts.record, receipts)
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [clean, tree, file]) == ["RETRIED", "OPEN", "OPEN"]
    assert all(letter(database, each)["triaged_at"] for each in (tree, file)), "seen once"


async def test_job_whose_key_was_taken_is_not_retried(bench: Bench, database: str) -> None:
    replaced, other = fail(database, 2, **OUTAGE)
    sql(database, "UPDATE cortex.job_record SET replaced_by = $2 WHERE id = $1", replaced, new_id())
    move_clock(database, CALM_S + 1)
    await a_triage(bench).tick(TickBudget())
    assert states(database, [replaced, other]) == ["OPEN", "RETRIED"]
    assert letter(database, replaced)["triaged_at"], "seen once"


async def test_letters_left_to_a_person_do_not_hold_up_the_others(
    bench: Bench, database: str
) -> None:
    left = fail(database, service.RETRIED_MAX + 5, **OUTAGE)
    receipts = [
        a_receipt(interruption=an_interruption(lease=a_lease(job_id=each)), problem="full")
        for each in left
    ]
    await bench.port(timeouts.record, receipts)
    move_clock(database, 1)
    clean = fail(database, 2, **OUTAGE)
    move_clock(database, CALM_S + 2)
    await a_triage(bench).tick(TickBudget())
    assert set(states(database, left)) == {"OPEN"}
    assert states(database, clean) == ["RETRIED", "RETRIED"]


async def test_locked_letters_do_not_hold_up_the_others(bench: Bench, database: str) -> None:
    denied: dict[str, Any] = {"error_class": "PERMANENT", "error_code": "forbidden"}
    held = fail(database, **OUTAGE) + fail(database, **denied)
    free = fail(database, **OUTAGE) + fail(database, **denied)
    move_clock(database, CALM_S + 1)
    with (
        holding_task(database, held[0], table="cortex.dead_letter"),
        holding_task(database, held[1], table="cortex.dead_letter"),
    ):
        await a_triage(bench).tick(TickBudget())
        assert states(database, free) == ["RETRIED", "ESCALATED"]
        assert states(database, held) == ["OPEN", "OPEN"]
    await eventually_async(lambda: not is_held(database), what="the letters are free again")
    await a_triage(bench).tick(TickBudget())
    assert states(database, held) == ["RETRIED", "ESCALATED"]


def is_held(dsn: str) -> bool:
    query = """
        SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND relation = 'cortex.dead_letter'::regclass
    """
    return bool(sql(dsn, query))


async def test_long_retry_locks_only_the_letters_it_retries(bench: Bench, database: str) -> None:
    denied: dict[str, Any] = {"error_class": "PERMANENT", "error_code": "forbidden"}
    chosen = fail(database, service.RETRIED_MAX, **OUTAGE)
    move_clock(database, 1)
    later, wrong = fail(database, 3, **OUTAGE), fail(database, 2, **denied)
    move_clock(database, CALM_S + 2)
    sql(database, WAITS_FOR_ORIGIN)
    sql(database, WAIT_FOR_ORIGIN)
    async with trio.open_nursery() as nursery:
        with holding_task(database, chosen[0], table="cortex.job_record"):
            nursery.start_soon(a_triage(bench).tick, TickBudget())
            await eventually_async(lambda: is_waited_for(database), what="the retry is under way")
            free = "SELECT job_id FROM cortex.dead_letter FOR UPDATE SKIP LOCKED"
            assert {row["job_id"] for row in sql(database, free)} == {*later, *wrong}
            await bench.port(dead_letters.discard, wrong[:1], by="ana", reason="of no use")
    assert states(database, wrong) == ["DISCARDED", "ESCALATED"]
    assert letter(database, wrong[0])["resolved_by"] == "ana"
    assert set(states(database, chosen)) == {"RETRIED"}
    assert set(states(database, later)) == {"OPEN"}


def is_waited_for(dsn: str) -> bool:
    query = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    return bool(sql(dsn, query))


async def test_job_too_large_is_escalated_and_does_not_hold_up_the_others(
    bench: Bench, database: str
) -> None:
    ids = fail(database, service.RETRIED_MAX, steps=2, **OUTAGE)
    large = ids[0]
    make_large(database, large)
    (wrong,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    move_clock(database, CALM_S + 1)
    triage = a_triage(bench)
    await triage.tick(TickBudget())
    assert states(database, [wrong]) == ["ESCALATED"], "verdicts are written all the same"
    for _ in range(10):
        await triage.tick(TickBudget())
    assert states(database, ids) == ["ESCALATED"] + ["RETRIED"] * (len(ids) - 1)
    assert letter(database, large)["reason"].startswith(f"job {large} is too large to go on from")
    assert_one_truth(database)


async def test_cancelled_retry_is_repeated_and_holds_up_no_verdict(
    bench: Bench, database: str
) -> None:
    (job_id,) = fail(database, steps=2, **OUTAGE)
    move_clock(database, CALM_S + 1)
    (wrong,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    triage = a_triage(bench)
    with cancelling(database, job_id):
        await triage.tick(TickBudget())
    assert states(database, [job_id, wrong]) == ["OPEN", "ESCALATED"]
    await triage.tick(TickBudget())
    assert states(database, [job_id]) == ["RETRIED"]


async def test_letter_cancelled_every_time_comes_after_the_others(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (resisting,) = fail(database, steps=2, **OUTAGE)
    move_clock(database, 1)
    others = fail(database, 3, steps=2, **OUTAGE)
    move_clock(database, CALM_S + 2)
    triage = a_triage(bench)
    with cancelling(database, resisting):
        for _ in range(6):
            await triage.tick(TickBudget())
        assert states(database, [resisting, *others]) == ["OPEN", *["RETRIED"] * 3]
        tried: list[Triaged | None] = []

        async def noted(*args: Any, **kwargs: Any) -> Triaged | None:
            tried.append(await triage_once(*args, **kwargs))
            return tried[-1]

        monkeypatch.setattr(service, "triage", noted)
        await triage.tick(TickBudget())
        (done,) = tried
        assert done is not None
        assert done.called_off == resisting, "it has its turns, too"
    await triage.tick(TickBudget())
    assert states(database, [resisting]) == ["RETRIED"]


async def test_one_pod_triages_at_a_time(bench: Bench, database: str) -> None:
    (job_id,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    with holding(database, hold_turns("triage")):
        await a_triage(bench).tick(TickBudget())
        assert states(database, [job_id]) == ["OPEN"]
    session = (
        "SELECT FROM pg_stat_activity WHERE query LIKE '%runner_turn%' AND state LIKE 'idle in%'"
    )
    await eventually_async(lambda: not sql(database, session), what="the turn is free again")
    await a_triage(bench).tick(TickBudget())
    assert states(database, [job_id]) == ["ESCALATED"]


async def test_triage_waits_out_an_outage(bench: Bench, database: str) -> None:
    (job_id,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    bench.port.refuse(triage_once)
    await bench.start(a_triage(bench))
    await eventually_async(
        lambda: states(database, [job_id]) == ["ESCALATED"], what="it looks again"
    )
    assert bench.port.faults_left == 0


async def test_lost_reply_retries_no_letter_twice(bench: Bench, database: str) -> None:
    ids = fail(database, 3, **OUTAGE)
    move_clock(database, CALM_S + 1)
    bench.port.lose_reply(triage_once)
    await bench.start(a_triage(bench))
    await eventually_async(lambda: bench.port.faults_left == 0, what="it looked")
    await eventually_async(
        lambda: states(database, ids) == ["RETRIED"] * 3, what="they are retried"
    )
    assert job_count(database, "origin_id IS NOT NULL") == 3


async def test_continued_job_runs_no_step_again(bench: Bench, database: str) -> None:
    ran: list[str] = []

    async def note(name: str) -> str:
        ran.append(name)
        return f"done {name}"

    async def handler(ctx: Context) -> list[Any]:
        done = [await ctx.step(name, note, name) for name in ("a", "b")]
        if ctx.attempt == 1 and not [name for name in ran if name == "c"]:
            ran.append("c")
            raise ValueError("not today")
        return [*done, await ctx.step("d", note, "d")]

    bench.handle(handler)
    await bench.start_committing()
    await bench.start(bench.dispatcher(poll_s=0.02))
    (job_id,) = await bench.submit(worker_attempts=1)
    await eventually_async(
        lambda: job_row(database, job_id)["status"] == "FAILED", what="it has failed"
    )
    wanted = [Resubmission(job_id=job_id, new_id=new_id())]
    (done,) = await bench.port(dead_letters.resubmit, wanted, by="ana", reason="tomorrow")
    assert done.retried_as is not None
    await eventually_async(
        lambda: job_row(database, wanted[0].new_id)["status"] == "COMPLETED", what="it goes on"
    )
    assert ran == ["a", "b", "c", "d"]
    heir = job_row(database, wanted[0].new_id)
    assert heir["result"] == ["done a", "done b", "done d"]
    assert [row[:2] for row in steps(database, heir["id"])] == [(1, 0), (2, 0), (3, 1)]
    assert job_row(database, job_id)["status"] == "FAILED"
    assert_one_truth(database)
