"""Jobs in the record: found, listed, followed, cancelled."""

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import TRANSITIONS, Claim, Finish, JobStatus, Release
from cortex.domain.policy import JobPolicy
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import Session
from cortex.store import codes, jobs, specs, tasks
from cortex.store.specs import SpecKind
from cortex.view.phrases import since_s
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import assert_one_truth, job_row, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

Submit = Callable[..., UUID]
ClaimSome = Callable[..., list[Claim]]


def finish(claim: Claim, **fields: Any) -> Finish:
    defaults: dict[str, Any] = {"status": JobStatus.COMPLETED, "result": '{"n": 1}'}
    return Finish(**{"lease": claim.lease} | defaults | fields)


def test_the_table_of_transitions_is_that_of_the_database(database: str) -> None:
    rows = sql(
        database,
        "SELECT a::text, b::text, cortex.is_legal_transition(a, b) AS legal "
        "FROM unnest(enum_range(NULL::cortex.job_status)) a, "
        "unnest(enum_range(NULL::cortex.job_status)) b",
    )
    assert len(rows) == 49
    of_database = {(row["a"], row["b"]) for row in rows if row["legal"]}
    ours = {(str(a), str(b)) for a, reachable in TRANSITIONS.items() for b in reachable}
    assert of_database == ours


def test_resubmission_after_an_unknown_outcome_adds_only_missing_jobs(store: Session) -> None:
    batch = [a_submission() for _ in range(3)]
    assert store(jobs.submit, batch[:2]).new == {each.id for each in batch[:2]}
    assert store(jobs.submit, batch).new == {batch[2].id}
    assert store(jobs.counts, [each.id for each in batch]) == {JobStatus.PENDING: 3}


def test_every_field_of_a_submission_arrives(store: Session, database: str) -> None:
    agent_id = new_id()
    store(
        specs.apply,
        SpecKind.AGENT,
        new_id=agent_id,
        name="researcher",
        spec={"model": "m"},
        by="ana",
    )
    given: dict[str, Any] = {
        "type": "other",
        "payload": '{"a": 1}',
        "agent": "researcher",
        "tenant": "acme",
        "queue_name": "q",
        "priority": -5,
        "worker_attempts": 7,
        "max_retries": 9,
        "timeout_s": 11,
    }
    submission = a_submission(**given, delay_s=3600.0, job_key="k")
    store(jobs.submit, [submission])
    row = store(jobs.show, submission.id)
    assert {name: getattr(row, name) for name in given} == given | {"payload": {"a": 1}}
    assert (row.agent_id, row.agent_version) == (agent_id, 1)
    assert 3590 < (row.run_at - row.now).total_seconds() <= 3600
    (task,) = sql(database, "SELECT job_key FROM cortex_worker.task")
    assert task["job_key"] == "4:acme:k"


def test_defaults_are_those_that_pods_wrote_last(store: Session, submit: Submit) -> None:
    first = {"work": JobPolicy(timeout_s=10), "other": JobPolicy()}
    store(jobs.ensure_types, first)
    store(jobs.ensure_types, {"work": JobPolicy(timeout_s=20, worker_attempts=2)})
    found = [store(codes.served, name, is_exact=False).timeout_s for name in ("work", "none")]
    assert found == [20, None]
    shown = store(jobs.show, submit())
    assert (shown.timeout_s, shown.worker_attempts) == (20, 2)


def test_a_job_is_shown_with_all_but_its_token(store: Session, submit: Submit) -> None:
    job_id = submit(payload='{"a": [1]}')
    shown = store(jobs.show, job_id)
    assert shown.id == job_id
    assert shown.payload == {"a": [1]}
    assert (shown.status, shown.task_state, shown.attempts_spent) == (
        "PENDING",
        "READY",
        0,
    )
    assert since_s(shown, shown.created_at) >= 0
    with pytest.raises(NotFoundError, match="does not exist"):
        store(jobs.show, new_id())


def test_a_job_is_found_by_its_id_or_the_end_of_it(store: Session) -> None:
    one = UUID("01900000-0000-7000-8000-00000000aaaa")
    two = UUID("01900000-0000-7000-8000-00000001aaaa")
    store(jobs.submit, [a_submission(id=one), a_submission(id=two)])
    for reference in (str(one), str(one).upper(), one.hex, "…0000-aaaa", "~0aaaa", " 00000aaaa "):
        assert store(jobs.find, reference) == one
    with pytest.raises(ConflictError, match="2 jobs end with 'aaaa'"):
        store(jobs.find, "aaaa")
    for reference in ("aaa", "", "%aaaa", "nothex", "ffff", "z" * 32):
        with pytest.raises(NotFoundError):
            store(jobs.find, reference)
    unknown = new_id()
    assert store(jobs.find, str(unknown)) == unknown  # whether it exists shows when it is used


def test_follow_returns_each_change_once(store: Session, submit: Submit, claim: ClaimSome) -> None:
    job_id, pod_id = submit(), new_id()
    first = store(jobs.follow, job_id)
    assert [row.new for row in first.history] == ["PENDING"]
    (claimed,) = claim(pod_id)
    release = Release(lease=claimed.lease, outcome="failed", error="oops")
    store(tasks.release, pod_id=pod_id, operations=[release])
    (claimed,) = claim(pod_id)
    seen = (first.history[-1].id, 0, 0)
    second = store(jobs.follow, job_id, after=seen)
    assert [row.new for row in second.history] == ["RUNNING"]
    assert [(row.attempt, row.error) for row in second.attempts] == [(1, "oops")]
    store(jobs.finish, pod_id=pod_id, operations=[finish(claimed)])
    seen = (second.history[-1].id, 1, 0)
    third = store(jobs.follow, job_id, after=seen)
    assert [row.new for row in third.history] == ["COMPLETED"]
    assert (third.attempts, third.result) == ([], {"n": 1})
    assert [row.new for row in store(jobs.history, job_id)] == [
        "PENDING",
        "RUNNING",
        "COMPLETED",
    ]
    assert [row.outcome for row in store(jobs.attempts, job_id)] == ["failed"]
    with pytest.raises(NotFoundError):
        store(jobs.follow, new_id())


def test_unfinished_job_is_found_by_its_payload(store: Session, claim: ClaimSome) -> None:
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="researcher", spec={}, by="ana")
    old, new = (
        a_submission(agent="researcher", payload=f'{{"folder": "/a", "n": {number}}}')
        for number in range(2)
    )
    store(jobs.submit, [old])
    assert store(jobs.unfinished, agent="researcher", payload={"folder": "/a"}) == old.id
    store(jobs.submit, [new])
    assert store(jobs.unfinished, agent="researcher", payload={"folder": "/a"}) == new.id
    assert store(jobs.unfinished, agent="researcher", payload={"folder": "/b"}) is None
    assert store(jobs.unfinished, agent="nobody", payload={}) is None
    pod_id = new_id()
    ends = [finish(each) for each in claim(pod_id)]
    store(jobs.finish, pod_id=pod_id, operations=ends)
    assert store(jobs.unfinished, agent="researcher", payload={"folder": "/a"}) is None


# --- cancelling


def test_pending_job_is_cancelled_at_once_with_the_persons_name(
    store: Session, submit: Submit, database: str
) -> None:
    job_id = submit()
    done = store(jobs.cancel, job_id, by="ana", reason="a mistake")
    assert (done.before, done.after) == (JobStatus.PENDING, JobStatus.CANCELLED)
    row = job_row(database, job_id)
    assert (row["cancelled_by"], row["cancel_reason"]) == ("ana", "a mistake")
    assert row["task_state"] is None
    with pytest.raises(ConflictError, match="is CANCELLED already"):
        store(jobs.cancel, job_id, by="bob", reason="me too")
    with pytest.raises(NotFoundError):
        store(jobs.cancel, new_id(), by="ana", reason="")


def test_running_job_gets_one_cancel_request_for_its_pod(
    store: Session, submit: Submit, claim: ClaimSome
) -> None:
    job_id, other, pod_id = submit(), submit(), new_id()
    claim(pod_id)
    asked: dict[str, Any] = {"pod_id": pod_id, "job_ids": [job_id, other]}
    assert store(jobs.cancel_requests, **asked) == []
    for by in ("ana", "bob"):  # asking again is no error, and the first one stays
        done = store(jobs.cancel, job_id, by=by, reason="why")
        assert (done.after, done.pod_id) == (JobStatus.RUNNING, pod_id)
    assert store(jobs.cancel_requests, **asked) == [(job_id, 1)]
    assert store(jobs.cancel_requests, pod_id=new_id(), job_ids=[job_id]) == []
    assert store(jobs.show, job_id).cancelled_by == "ana"


def test_a_job_between_two_attempts_is_cancelled_at_once(
    store: Session, submit: Submit, claim: ClaimSome, database: str
) -> None:
    job_id, pod_id = submit(), new_id()
    (claimed,) = claim(pod_id)
    release = Release(lease=claimed.lease, outcome="failed", delay_s=60.0, error="oops")
    store(tasks.release, pod_id=pod_id, operations=[release])
    assert store(jobs.cancel, job_id, by="ana", reason="").after is JobStatus.CANCELLED
    assert_one_truth(database)


def test_cancel_request_outlives_its_attempt(
    store: Session, submit: Submit, claim: ClaimSome
) -> None:
    job_id, pod_id = submit(), new_id()
    (claimed,) = claim(pod_id)
    store(jobs.cancel, job_id, by="ana", reason="")
    release = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=pod_id, operations=[release])
    (again,) = claim(new_id())
    assert again.cancel_requested
    assert not claimed.cancel_requested


def test_cancels_race_claims_and_ends_and_one_truth_remains(database: str) -> None:
    rng = seeded_random()

    async def race() -> None:
        profile = Profile(dsn=database, hot_path=True)
        stores = [await open_database(profile, rng=rng) for _ in range(3)]
        batch = [a_submission() for _ in range(150)]
        await jobs.submit(stores[0], batch)

        async def cancel_all() -> None:
            for each in random.Random(rng.random()).sample(batch, k=len(batch)):
                try:
                    await jobs.cancel(stores[0], each.id, by="ana", reason="race")
                except ConflictError:
                    continue

        async def work(number: int) -> None:
            db, pod_id = stores[number], new_id()
            while claims := await tasks.claim(db, pod_id=pod_id, types=[JOB_TYPE], limit=3):
                ids = [each.lease.job_id for each in claims]
                requested = await jobs.cancel_requests(db, pod_id=pod_id, job_ids=ids)
                asked = {job_id for job_id, _ in requested}
                ends = [
                    finish(each, status=JobStatus.CANCELLED, result=None)
                    if each.lease.job_id in asked
                    else finish(each)
                    for each in claims
                ]
                assert await jobs.finish(db, pod_id=pod_id, operations=ends) == set(ids)

        await asyncio.gather(cancel_all(), work(1), work(2))
        for each in stores:
            await each.close()

    run_asyncio(race)
    counts = sql(database, "SELECT status::text, count(*) AS n FROM cortex.job GROUP BY status")
    assert {row["status"] for row in counts} <= {"COMPLETED", "CANCELLED"}
    assert sum(row["n"] for row in counts) == 150
    assert_one_truth(database)
