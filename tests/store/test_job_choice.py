"""Operations on all jobs that match a filter: each chosen job is changed once and counted."""

import asyncio
import json
from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.bulk import BulkCounts, BulkOrder, BulkSlice, BulkVerb
from cortex.domain.errors import UsageError
from cortex.domain.job import Claim, Finish, JobStatus, Suspend
from cortex.domain.job_filter import JobFilter, Refusal, parse_filter
from cortex.domain.waiting import SLEEP
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import Session
from cortex.store import bulk, clock, job_choice, jobs, tasks
from cortex.store.job_choice import (
    choose_marked_to_cancel,
    choose_marked_to_retry,
    choose_to_cancel,
    choose_to_retry,
)
from tests.support.records.bulk import a_request, an_order
from tests.support.records.factories import a_submission
from tests.support.records.rows import assert_one_truth, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

Submits = Callable[..., UUID]
Claims = Callable[..., list[Claim]]
ALL = JobFilter()


def cancelling(by: str = "ana", reason: str = "") -> BulkOrder:
    return an_order(a_request(verb=BulkVerb.CANCEL, jobs="", reason=reason), by=by)


def retrying(store: Session, by: str = "ana", reason: str = "") -> BulkOrder:
    return an_order(a_request(jobs="", reason=reason), by=by, at=store(clock.now))


def settled(store: Session, order: BulkOrder, job_ids: list[UUID]) -> BulkCounts:
    done = store(bulk.settle, order, job_ids)
    assert isinstance(done, BulkSlice)
    return done.counts


def status(database: str, job_id: UUID) -> str:
    (row,) = sql(database, "SELECT status::text AS s FROM cortex.job WHERE id = $1", job_id)
    return str(row["s"])


def suspended(store: Session, pod_id: UUID, claims: list[Claim]) -> list[UUID]:
    """Let claimed jobs wait an hour for their retry."""
    ended = [Suspend(lease=each.lease, delay_s=3600.0, is_counted=True) for each in claims]
    return sorted(store(tasks.suspend, pod_id=pod_id, operations=ended))


def test_bulk_cancel_ends_waiting_jobs_and_asks_running_ones(
    store: Session, database: str, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    (running,) = (submit(),)
    claim(pod_id)
    waiting = [submit(queue_name="mail") for _ in range(3)]
    other = submit(tenant="other")
    which = parse_filter("tenant:default")
    choice = store(choose_to_cancel, which, limit=100)
    assert choice.job_ids == [*reversed(waiting), running]
    assert (choice.refused, choice.has_more) == ({}, False)
    done = settled(store, cancelling(reason="a mistake"), choice.job_ids)
    assert (done.changed, done.asked, done.refused) == (4, 1, {})
    assert {status(database, each) for each in waiting} == {"CANCELLED"}
    assert (status(database, running), status(database, other)) == ("RUNNING", "PENDING")
    rows = sql(
        database,
        "SELECT metadata FROM cortex.job_history WHERE new = 'CANCELLED' AND job_id = ANY ($1)",
        waiting,
    )
    output = [json.loads(row["metadata"]) for row in rows]
    assert [(each["by"], each["reason"]) for each in output] == [("ana", "a mistake")] * 3
    assert store(jobs.cancel_requests, pod_id=pod_id, job_ids=[running]) == [(running, 1)]
    assert_one_truth(database)


def test_ended_jobs_are_counted_before_and_during_an_operation(
    store: Session, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    for _ in range(3):
        submit()
    (first, second) = claim(pod_id, limit=2)

    def finish(claimed: Claim) -> None:
        ended = Finish(lease=claimed.lease, status=JobStatus.COMPLETED, result="1")
        store(jobs.finish, pod_id=pod_id, operations=[ended])

    finish(first)
    assert store(choose_to_cancel, ALL, limit=10).refused == {}, "it does not fit unless asked for"
    choice = store(choose_to_cancel, parse_filter("status:pend,run,done"), limit=10)
    assert (len(choice.job_ids), choice.refused) == (2, {}), "there may be millions that ended"
    for choose, hopeless in (
        (choose_to_cancel, "fail"),
        (choose_to_cancel, "done,canc"),
        (choose_to_retry, "done,pend"),
    ):
        with pytest.raises(UsageError, match=r"no job that is .* can be"):
            store(choose, parse_filter(f"status:{hopeless}"), limit=10)
    finish(second)
    done = settled(store, cancelling(), [*choice.job_ids, new_id()])
    assert (done.changed, done.asked) == (1, 0)
    assert done.refused == {"ended": 1, "gone": 1}
    again = settled(store, cancelling(), choice.job_ids)
    assert (again.changed, again.refused) == (1, {"ended": 1}), "its reply was lost, say"
    other = settled(store, cancelling("ben"), choice.job_ids)
    assert (other.changed, other.refused) == (0, {"ended": 2})


def test_limit_takes_the_newest_jobs_and_reports_more(
    store: Session, submit: Submits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_choice, "PAGE", 2)
    ids = [submit() for _ in range(5)]
    choice = store(choose_to_cancel, ALL, limit=3)
    assert (choice.job_ids, choice.has_more) == (ids[:1:-1], True)
    choice = store(choose_to_cancel, ALL, limit=5)
    assert (choice.job_ids, choice.has_more) == (ids[::-1], False)
    monkeypatch.setattr(job_choice, "PAGES_MAX", 2)
    choice = store(choose_to_cancel, ALL, limit=5)
    assert (len(choice.job_ids), choice.has_more) == (4, True)


def test_bulk_retry_changes_only_jobs_in_retry(
    store: Session, database: str, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    for _ in range(4):
        submit()
    waiting = suspended(store, pod_id, claim(pod_id, limit=3))
    (running,) = claim(pod_id)
    submit(delay_s=60.0)
    choice = store(choose_to_retry, ALL, limit=100)
    assert sorted(choice.job_ids) == waiting
    assert choice.refused == {Refusal.RUNNING: 1, Refusal.UNTRIED: 1}
    asked = [*choice.job_ids, running.lease.job_id]
    done = settled(store, retrying(store, reason="it is back"), asked)
    assert (done.changed, done.refused) == (3, {"running": 1})
    again = settled(store, retrying(store, "ben"), choice.job_ids)
    assert (again.changed, again.refused) == (0, {"due": 3})
    rows = sql(database, "SELECT data FROM cortex.fact WHERE subtype = 'retried_now'")
    output = [json.loads(row["data"]) for row in rows]
    assert [(each["by"], each["reason"]) for each in output] == [("ana", "it is back")] * 3
    assert {each.lease.job_id for each in claim(pod_id)} == set(waiting)
    assert_one_truth(database)


def test_a_job_that_sleeps_is_not_retried(
    store: Session, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    submit()
    ended = [
        Suspend(lease=each.lease, delay_s=3600.0, is_counted=False, waiting_on=SLEEP)
        for each in claim(pod_id)
    ]
    store(tasks.suspend, pod_id=pod_id, operations=ended)
    choice = store(choose_to_retry, ALL, limit=100)
    assert (choice.job_ids, choice.refused) == ([], {Refusal.WAITING: 1})


def test_two_people_at_once_change_each_job_once(database: str, store: Session) -> None:
    rng = seeded_random()
    ids = [new_id() for _ in range(500)]
    store(jobs.submit, [a_submission(id=each) for each in ids])

    async def race() -> list[BulkCounts]:
        opened = [await open_database(Profile(dsn=database), rng=rng) for _ in range(2)]

        async def act(db: Database, by: str) -> BulkCounts:
            mine, counts = rng.sample(ids, len(ids)), BulkCounts()
            for start in range(0, len(mine), 100):
                done = await bulk.settle(db, cancelling(by), mine[start : start + 100])
                assert isinstance(done, BulkSlice)
                counts = counts.plus(done.counts)
            return counts

        try:
            return list(await asyncio.gather(*map(act, opened, ("ana", "ben"))))
        finally:
            for each in opened:
                await each.close()

    one, two = run_asyncio(race)
    assert one.changed + two.changed == 500
    assert [sum((each.changed, *each.refused.values())) for each in (one, two)] == [500, 500]
    rows = sql(database, "SELECT count(*) AS n FROM cortex.job_history WHERE new = 'CANCELLED'")
    assert rows[0]["n"] == 500
    assert_one_truth(database)


def test_marked_jobs_are_split_into_changeable_and_refused(
    store: Session, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    ended, later = submit(), submit()
    suspended(store, pod_id, claim(pod_id))
    fresh, gone = submit(), new_id()
    settled(store, cancelling(), [ended])
    marked = [fresh, ended, gone, later]
    cancel = store(choose_marked_to_cancel, marked)
    assert cancel.job_ids == [fresh, later], "in the order in which they were marked"
    assert cancel.refused == {Refusal.ENDED: 1, Refusal.GONE: 1}
    retry = store(choose_marked_to_retry, marked)
    assert retry.job_ids == [later]
    assert retry.refused == {Refusal.ENDED: 1, Refusal.UNTRIED: 1, Refusal.GONE: 1}


def test_at_a_repeat_those_that_run_by_then_count_as_released(
    store: Session, database: str, claim: Claims, pod_id: UUID
) -> None:
    store(jobs.submit, [a_submission(id=new_id()) for _ in range(6)])
    waiting = suspended(store, pod_id, claim(pod_id, limit=6))
    settled(store, retrying(store, "ben"), waiting[:1])
    claim(pod_id, limit=1)
    order = retrying(store, reason="it is back")
    first = settled(store, order, waiting)
    assert (first.changed, first.refused) == (5, {"running": 1})
    claim(pod_id, limit=100)
    assert settled(store, order, waiting) == first, "its step was lost, say"
    rows = sql(database, "SELECT data->>'by' AS by FROM cortex.fact WHERE subtype = 'retried_now'")
    assert sorted(row["by"] for row in rows) == ["ana"] * 5 + ["ben"]
