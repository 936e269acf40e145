"""Operations on all jobs that match a filter: they change each chosen job once and count them."""

import asyncio
import json
from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.errors import OutcomeUnknownError, UnavailableError, UsageError
from cortex.domain.job import Claim, Finish, JobStatus, Suspend
from cortex.domain.job_filter import JobFilter, Refusal, parse_filter
from cortex.postgres.database import Database, Profile, Record, open_database
from cortex.postgres.session import Session, open_session
from cortex.store import job_choice, jobs, tasks
from cortex.store.job_choice import (
    BATCH,
    PartlyDoneError,
    cancel_chosen,
    choose_marked_to_cancel,
    choose_marked_to_retry,
    choose_to_cancel,
    choose_to_retry,
    retry_chosen,
)
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import assert_one_truth, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

Submits = Callable[..., UUID]
Claims = Callable[..., list[Claim]]
ALL = JobFilter()


def status(database: str, job_id: UUID) -> str:
    (row,) = sql(database, "SELECT status::text AS s FROM cortex.job WHERE id = $1", job_id)
    return str(row["s"])


def suspended(store: Session, pod_id: UUID, claims: list[Claim]) -> list[UUID]:
    """Let claimed jobs wait an hour for their retry."""
    ended = [Suspend(lease=each.lease, delay_s=3600.0, is_counted=True) for each in claims]
    return sorted(store(tasks.suspend, pod_id=pod_id, operations=ended))


def test_all_that_fit_are_cancelled_and_those_that_run_are_asked_to_end(
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
    done = store(cancel_chosen, choice.job_ids, by="ana", reason="a mistake")
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


def test_what_has_ended_is_counted_before_and_meanwhile(
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
    done = store(cancel_chosen, [*choice.job_ids, new_id()], by="ana", reason="")
    assert (done.changed, done.asked) == (1, 0)
    assert done.refused == {Refusal.ENDED: 1, Refusal.GONE: 1}
    again = store(cancel_chosen, choice.job_ids, by="ana", reason="")
    assert (again.changed, again.refused) == (1, {Refusal.ENDED: 1}), "its reply was lost, say"
    other = store(cancel_chosen, choice.job_ids, by="ben", reason="")
    assert (other.changed, other.refused) == (0, {Refusal.ENDED: 2})


def test_the_limit_takes_the_newest_and_says_that_there_are_more(
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


def test_those_that_wait_for_their_retry_try_again_and_others_are_told_apart(
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
    done = store(retry_chosen, asked, by="ana", reason="it is back", new_id=new_id)
    assert (done.changed, done.refused) == (3, {Refusal.RUNNING: 1})
    again = store(retry_chosen, choice.job_ids, by="ben", reason="", new_id=new_id)
    assert (again.changed, again.refused) == (0, {Refusal.DUE: 3})
    rows = sql(database, "SELECT data FROM cortex.fact WHERE subtype = 'retried_now'")
    output = [json.loads(row["data"]) for row in rows]
    assert [(each["by"], each["reason"]) for each in output] == [("ana", "it is back")] * 3
    assert {each.lease.job_id for each in claim(pod_id)} == set(waiting)
    assert_one_truth(database)


def test_two_people_at_once_change_each_job_once(database: str, store: Session) -> None:
    rng = seeded_random()
    ids = [new_id() for _ in range(500)]
    store(jobs.submit, [a_submission(id=each) for each in ids])

    async def race() -> list[job_choice.BulkDone]:
        opened = [await open_database(Profile(dsn=database), rng=rng) for _ in range(2)]

        async def act(db: Database, by: str) -> job_choice.BulkDone:
            return await cancel_chosen(db, rng.sample(ids, len(ids)), by=by, reason="")

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


def test_of_marked_ones_those_are_chosen_that_an_act_would_change(
    store: Session, submit: Submits, claim: Claims, pod_id: UUID
) -> None:
    ended, later = submit(), submit()
    suspended(store, pod_id, claim(pod_id))
    fresh, gone = submit(), new_id()
    store(cancel_chosen, [ended], by="ana", reason="")
    marked = [fresh, ended, gone, later]
    cancel = store(choose_marked_to_cancel, marked)
    assert cancel.job_ids == [fresh, later], "in the order in which they were marked"
    assert cancel.refused == {Refusal.ENDED: 1, Refusal.GONE: 1}
    retry = store(choose_marked_to_retry, marked)
    assert retry.job_ids == [later]
    assert retry.refused == {Refusal.ENDED: 1, Refusal.UNTRIED: 1, Refusal.GONE: 1}


def breaking(
    monkeypatch: pytest.MonkeyPatch, query: str, *, at_call: int, error: Exception, is_done: bool
) -> list[Callable[[], None]]:
    """Let a call of a query fail, done or not; what is put on the list happens at that instant."""
    fetch, meanwhile, calls = Database.fetch, list[Callable[[], None]](), [0]

    async def failing(self: Database, name: str, *args: object) -> list[Record]:
        calls[0] += name == query
        if name != query or calls[0] != at_call:
            return await fetch(self, name, *args)
        if is_done:
            await fetch(self, name, *args)
        for each in meanwhile:
            await asyncio.to_thread(each)
        raise error

    monkeypatch.setattr(Database, "fetch", failing)
    return meanwhile


def test_who_runs_by_the_time_a_lost_reply_is_asked_for_again_was_let_go(
    store: Session, database: str, claim: Claims, pod_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(jobs.submit, [a_submission(id=new_id()) for _ in range(6)])
    waiting = suspended(store, pod_id, claim(pod_id, limit=6))
    store(retry_chosen, waiting[:1], by="ben", reason="", new_id=new_id)
    (running,) = claim(pod_id, limit=1)
    monkeypatch.setattr(job_choice, "CLOCK_SLACK_S", 60.0)
    lost = OutcomeUnknownError("the reply was lost")
    meanwhile = breaking(monkeypatch, "retries.now", at_call=1, error=lost, is_done=True)
    meanwhile.append(lambda: _claim_all(database, pod_id))
    done = store(retry_chosen, waiting, by="ana", reason="it is back", new_id=new_id)
    rows = sql(database, "SELECT data->>'by' AS by FROM cortex.fact WHERE subtype = 'retried_now'")
    assert sorted(row["by"] for row in rows) == ["ana"] * 5 + ["ben"]
    assert {status(database, each) for each in waiting} == {"RUNNING"}
    assert (done.changed, done.refused) == (5, {Refusal.RUNNING: 1}), running


def _claim_all(database: str, pod_id: UUID) -> None:
    with open_session(Profile(dsn=database)) as other:
        other(tasks.claim, pod_id=pod_id, types=[JOB_TYPE], limit=100)


@pytest.mark.parametrize("error", [UnavailableError("gone"), OutcomeUnknownError("gone")])
def test_what_breaks_an_act_off_tells_what_was_done(
    database: str, store: Session, monkeypatch: pytest.MonkeyPatch, error: UnavailableError
) -> None:
    ids = [new_id() for _ in range(3 * BATCH)]
    store(jobs.submit, [a_submission(id=each) for each in ids])
    monkeypatch.setattr("cortex.store.lost_replies.TRIES_MAX", 1)
    breaking(monkeypatch, "jobs.cancel", at_call=3, error=error, is_done=False)
    with pytest.raises(
        PartlyDoneError, match=r"400 of 600 were cancelled .* before that: gone"
    ) as e:
        store(cancel_chosen, ids, by="ana", reason="")
    assert (e.value.done.changed, e.value.__cause__) == (2 * BATCH, error)
    rows = sql(database, "SELECT count(*) AS n FROM cortex.job WHERE status = 'CANCELLED'")
    assert rows[0]["n"] == 2 * BATCH
    again = store(cancel_chosen, ids, by="ana", reason="")
    assert again.changed == 3 * BATCH, "it goes on"
