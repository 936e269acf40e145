"""Bulk operations as jobs of a pod: each job and dead letter is changed once and counted."""

from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.domain.bulk import BulkChoice, BulkOrder, BulkRequest, BulkVerb
from cortex.domain.job import BULK
from cortex.domain.job_filter import parse_filter
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.durable.context import Context
from cortex.jobs import bulk as bulk_type
from cortex.runtime.calls.bulk_operations import StoreBulkOperations
from cortex.store import bulk, dead_letters, jobs, pauses, retries
from cortex.store.bulk import Resisted
from tests.support.eventually import eventually_async
from tests.support.holder import holding_task
from tests.support.records.bulk import a_request
from tests.support.records.dead_letters import fail, letter, lifecycle, make_large
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    job_row,
    move_clock,
    new_id,
    steps,
)
from tests.support.servers.postgres import sql

REFUSES = """
    CREATE FUNCTION cortex.test_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.origin_id = ANY (TG_ARGV[0]::uuid[]) THEN
            RAISE EXCEPTION 'no such job is wanted';
        END IF;
        RETURN NEW;
    END $$
"""
POISON = """
    CREATE TRIGGER test_refuses BEFORE INSERT ON cortex.job_record
    FOR EACH ROW EXECUTE FUNCTION cortex.test_refuses('{%s}')
"""


@pytest.fixture
async def pod(bench: Bench) -> Bench:
    """A pod with one slot, that also runs bulk operations."""
    bench.running.slots = bench.slots = 1
    bench.registry.collect(bulk_type)
    await bench.start_committing()
    return bench


async def submit(pod: Bench, request: BulkRequest, *, by: str = "ana") -> UUID:
    job_id = new_id()
    await pod.port(jobs.submit, [request.submission(job_id)], by=by)
    return job_id


async def carry_out(pod: Bench, dsn: str, request: BulkRequest, *, by: str = "ana") -> Any:
    """Submit a request and run it to its end; return the result."""
    job_id = await submit(pod, request, by=by)
    await pod.start(pod.dispatcher(poll_s=0.05))
    return await result(dsn, job_id)


async def result(dsn: str, job_id: UUID) -> Any:
    def is_over() -> bool:
        return job_row(dsn, job_id)["status"] in ("COMPLETED", "FAILED")

    await eventually_async(is_over, what="the bulk operation is over")
    row = job_row(dsn, job_id)
    assert row["status"] == "COMPLETED", row["error_message"]
    return row["result"]


def changed(result: Any) -> tuple[int, int, dict[str, int]]:
    counts = result["counts"]
    return counts["changed"], counts["failed"], counts["refused"]


async def waiting(pod: Bench, count: int) -> list[UUID]:
    """Jobs that wait for their retry."""
    ids = await pod.submit(count)
    sql_ids = "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = ANY ($1)"
    waits = """
        UPDATE cortex.job_record SET status = 'RETRY', worker_job_id = NULL,
            suspended_at = cortex.now(), next_retry_at = cortex.now() + interval '1 hour'
        WHERE id = ANY ($1)
    """
    dsn = pod.port._profile.dsn
    sql(dsn, sql_ids, ids)
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = ANY ($1)", ids)
    sql(dsn, waits, ids)
    return ids


# --- dead letters


@pytest.mark.parametrize("verb", [BulkVerb.RETRY, BulkVerb.DISCARD])
async def test_each_letter_is_settled_once_in_the_submitters_name(
    pod: Bench, database: str, verb: BulkVerb
) -> None:
    ids = fail(database, 45, steps=2)
    (other,) = fail(database, submitted={"type": "other"})
    sql(database, REFUSES)
    sql(database, POISON % ids[7])
    pod.port.lose_reply(bulk.settle)
    done = await carry_out(pod, database, a_request(verb=verb))
    is_retry = verb is BulkVerb.RETRY
    assert changed(done) == (44 if is_retry else 45, int(is_retry), {})
    assert (done["total"], done["has_more"]) == (45, False)
    found = letter(database, ids[44])
    assert found["state"] == ("RETRIED" if is_retry else "DISCARDED")
    assert (found["resolved_by"], found["reason"]) == ("ana", "mended")
    assert {len(lifecycle(database, each)) for each in ids[8:]} == {1}
    assert letter(database, other)["state"] == "OPEN"
    assert job_count(database, "origin_id IS NOT NULL") == (44 if is_retry else 0)
    if is_retry:
        assert len(steps(database, found["retried_as"])) == 2
        (failure,) = done["failures"]
        assert (failure["job_id"], failure["code"]) == (str(ids[7]), "rejected")
        assert "no such job is wanted" in failure["error"]
    assert_one_truth(database)


async def test_the_oldest_letters_change_first_for_every_cause(pod: Bench, database: str) -> None:
    old = fail(database, 2, error_code="diverged")
    ids = sorted(fail(database, 3, steps=1))
    done = await carry_out(pod, database, a_request(limit=4))
    assert (changed(done), done["left_out"], done["has_more"]) == ((4, 0, {}), {}, True)
    assert [letter(database, each)["state"] for each in (*old, *ids)] == [
        *["RETRIED"] * 4,
        "OPEN",
    ]


async def test_letters_failed_after_the_count_stay_open(pod: Bench, database: str) -> None:
    """One of the counted ones is settled, and another fails, before the operation chooses."""
    ids = fail(database, 3)
    counted = await pod.port(
        dead_letters.choose, parse_filter("letter:unresolved type:work"), limit=3
    )
    await pod.port(dead_letters.discard, [ids[0]], by="li", reason="old")
    (late,) = fail(database)
    done = await carry_out(pod, database, a_request(limit=3, letters_through=counted[-1]))
    assert (changed(done), letter(database, late)["state"]) == ((2, 0, {}), "OPEN")


async def test_counted_letters_are_named_so_that_older_ones_that_match_later_stay_open(
    pod: Bench, database: str
) -> None:
    """The filter matches one more, with an older letter, when the operation chooses."""
    (older,) = fail(database)
    counted = fail(database, 2)
    request = BulkRequest.counted(
        BulkVerb.DISCARD, sorted(counted), jobs="letter:unresolved type:work", at=None, reason="x"
    )
    done = await carry_out(pod, database, request)
    assert changed(done) == (2, 0, {})
    assert letter(database, older)["state"] == "OPEN"


async def test_letter_settled_meanwhile_fails_with_its_reason(pod: Bench, database: str) -> None:
    ids = fail(database, 2)
    request = a_request()
    choice = await pod.port(bulk.choose, await submit(pod, request), request)
    await pod.port(dead_letters.discard, [ids[1]], by="li", reason="old")
    done = await pod.port(bulk.settle, _order(choice, request), ids)
    assert (done.counts.changed, done.counts.failed) == (1, 1)
    assert "was discarded by li" in done.failures[0].error


def _order(choice: BulkChoice, request: BulkRequest) -> BulkOrder:
    return BulkOrder(id=choice.id, by=choice.by, at=choice.at, request=request)


# --- jobs


async def test_jobs_are_cancelled_while_all_slots_are_taken(pod: Bench, database: str) -> None:
    async def endless(_: Context) -> None:
        await trio.sleep_forever()

    pod.handle(endless)
    await pod.submit(3)
    dispatcher = pod.dispatcher(poll_s=0.05)
    await dispatcher.tick()
    assert pod.running.free_slots == 0
    pod.port.lose_reply(bulk.settle)
    done = await carry_out(
        pod, database, a_request(verb=BulkVerb.CANCEL, jobs=f"type:{JOB_TYPE}"), by="ben"
    )
    assert changed(done) == (3, 0, {})
    assert done["counts"]["asked"] == 1
    assert pod.running.free_slots == 0
    rows = sql(
        database,
        "SELECT cancelled_by, cancel_reason FROM cortex.job WHERE type = $1",
        JOB_TYPE,
    )
    assert {tuple(row) for row in rows} == {("ben", "mended")}


async def test_bulk_retry_releases_waiting_jobs_and_continues_failed_ones_once(
    pod: Bench, database: str
) -> None:
    ids = await waiting(pod, 5)
    failed = fail(database, 2, submitted={"type": JOB_TYPE})
    later = await pod.submit(1, delay_s=3600.0)
    pod.port.lose_reply(bulk.settle)
    request = a_request(jobs=f"type:{JOB_TYPE} status:retry,fail")
    done = await carry_out(pod, database, request)
    assert changed(done) == (7, 0, {})
    assert done["counts"]["resubmitted"] == 2
    facts = sql(database, "SELECT job_id FROM cortex.fact WHERE subtype = 'retried_now'")
    assert sorted(row["job_id"] for row in facts) == sorted(ids), "each once"
    assert job_count(database, "origin_id IS NOT NULL") == len(failed)
    assert job_row(database, later[0])["status"] == "PENDING"
    assert_one_truth(database)


async def test_a_released_job_that_failed_before_the_repeat_is_not_continued(
    pod: Bench, database: str
) -> None:
    ids = sorted(await waiting(pod, 2))
    request = a_request(jobs=f"type:{JOB_TYPE} status:retry")
    choice = await pod.port(bulk.choose, await submit(pod, request), request)
    order = _order(choice, request)
    assert (await pod.port(bulk.settle, order, ids)).counts.changed == 2
    runs = """
        UPDATE cortex.job_record SET status = 'RUNNING', next_retry_at = NULL,
            suspended_at = NULL WHERE id = $1
    """
    fails = """
        UPDATE cortex.job_record SET status = 'FAILED', worker_job_id = NULL,
            error_class = 'permanent', error_code = 'job_failed', error_message = 'no' WHERE id = $1
    """
    sql(database, runs, ids[0])
    sql(database, "DELETE FROM cortex_worker.task WHERE job_id = $1", ids[0])
    sql(database, fails, ids[0])
    counts = (await pod.port(bulk.settle, order, ids)).counts
    assert (counts.changed, counts.resubmitted, counts.refused) == (2, 0, {})
    assert letter(database, ids[0])["state"] == "OPEN"
    assert job_count(database, "origin_id IS NOT NULL") == 0


async def test_jobs_submitted_after_the_operation_are_left_alone(pod: Bench, database: str) -> None:
    (before,) = await pod.submit(1)
    job_id = await submit(pod, a_request(verb=BulkVerb.CANCEL, jobs=f"type:{JOB_TYPE}"))
    (after,) = await pod.submit(1)
    await pod.start(pod.dispatcher(poll_s=0.05))
    assert changed(await result(database, job_id)) == (1, 0, {})
    assert job_row(database, before)["status"] == "CANCELLED"
    assert job_row(database, after)["status"] == "PENDING"


async def test_missing_and_ended_jobs_are_counted_as_left_out(pod: Bench, database: str) -> None:
    (job_id,) = await pod.submit(1)
    (ended,) = fail(database)
    request = a_request(verb=BulkVerb.CANCEL, job_ids=(job_id, ended, new_id()))
    done = await carry_out(pod, database, request)
    assert (changed(done), done["left_out"]) == ((1, 0, {}), {"ended": 1, "gone": 1})


async def test_bulk_operation_without_a_submitter_fails(pod: Bench, database: str) -> None:
    job_id = new_id()
    await pod.port(jobs.submit, [a_request().submission(job_id)])
    await pod.start(pod.dispatcher(poll_s=0.05))
    await eventually_async(
        lambda: job_row(database, job_id)["status"] == "FAILED", what="it has failed"
    )
    assert "its submitter" in job_row(database, job_id)["error_message"]


async def test_a_paused_queue_holds_all_of_them(pod: Bench, database: str) -> None:
    fail(database, 2)
    await pod.port(pauses.pause, Pausable(PauseKind.QUEUE, BULK), by="ana", reason="wait")
    job_id = await submit(pod, a_request())
    dispatcher = pod.dispatcher(poll_s=0.05)
    await dispatcher.tick()
    assert job_row(database, job_id)["status"] == "PENDING"
    await pod.port(pauses.resume, Pausable(PauseKind.QUEUE, BULK), by="ana", reason="go")
    await pod.start(dispatcher)
    assert changed(await result(database, job_id)) == (2, 0, {})


# --- what resists


async def test_a_locked_letter_holds_up_its_own_operation_alone(pod: Bench, database: str) -> None:
    (held,) = fail(database, 1)
    (free,) = fail(database, 1, submitted={"type": "free"})
    with holding_task(database, held, table="cortex.dead_letter"):
        first = await submit(pod, a_request())
        await pod.start(pod.dispatcher(poll_s=0.05))
        await eventually_async(
            lambda: job_row(database, first)["waiting_on"] == "sleep", what="it waits"
        )
        row = job_row(database, first)
        assert (row["status"], row["retry_count"]) == ("RETRY", 0)
        second = await submit(pod, a_request(jobs="letter:unresolved type:free"))
        assert changed(await result(database, second)) == (1, 0, {})
        assert letter(database, free)["state"] == "RETRIED"
    move_clock(database, 60)
    assert (await pod.port(retries.due, limit=10)).count == 1
    assert changed(await result(database, first)) == (1, 0, {})


async def test_resisting_slice_is_halved_until_one_item_fails(pod: Bench, database: str) -> None:
    ids = sorted(fail(database, 12, steps=2))
    make_large(database, ids[0])
    request = a_request()
    choice = await pod.port(bulk.choose, await submit(pod, request), request)
    order, service = _order(choice, request), StoreBulkOperations(port=pod.port, rng=pod.rng)
    done = await service.settle(order, ids)
    assert (done.passed, done.counts.failed) == (1, 1)
    assert "too large to go on from" in done.failures[0].error
    assert "--from-start" in done.failures[0].error
    done = await service.settle(order, ids[1:])
    assert (done.passed, done.counts.changed) == (11, 11)
    assert isinstance(await pod.port(bulk.settle, order, ids), Resisted)
