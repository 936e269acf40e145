"""The key that a job was submitted with: it keeps it while it waits to be tried again."""

from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Finish, JobStatus, Lease, Release, Suspend
from cortex.postgres.session import Session
from cortex.store import jobs, retries, tasks
from tests.support.records.rows import (
    NoPause,
    assert_one_truth,
    history,
    job_row,
    move_clock,
    new_id,
    seeded_random,
)
from tests.support.servers.postgres import sql

POD = UUID(int=7)


def let_go_by_time(store: Session, job_id: UUID) -> None:
    assert store(retries.due).count == 1, job_id


def let_go_by_person(store: Session, job_id: UUID) -> None:
    store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)


@pytest.mark.parametrize("let_go", [let_go_by_time, let_go_by_person])
def test_released_job_keeps_its_key_until_a_successor_replaces_it(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    let_go: Callable[[Session, UUID], None],
) -> None:
    job_id = submit(job_key="k")
    (claimed,) = claim(POD)
    suspend(store, claimed)
    assert keys(database) == {}
    let_go(store, job_id)
    assert keys(database) == {job_id: "k"}
    successor = submit(job_key="k")
    assert keys(database) == {successor: "k"}
    assert history(database, job_id)[-1][:2] == ("RETRY", "CANCELLED")
    assert_one_truth(database)


# --- jobs that lose their key while they run


def ends_to_be_tried_again(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=0.0, is_counted=True, error="overloaded")
    assert store(tasks.suspend, pod_id=POD, operations=[operation]) == {lease.job_id}


def sleeps(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=0.0, is_counted=False, waiting_on="sleep")
    assert store(tasks.suspend, pod_id=POD, operations=[operation]) == {lease.job_id}


def waits_for_a_breaker(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=0.0, is_counted=False, waiting_on="llm:x")
    assert store(tasks.suspend, pod_id=POD, operations=[operation]) == {lease.job_id}


def waits_for_a_person(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=None, is_counted=False, waiting_on="person:billing")
    assert store(tasks.suspend, pod_id=POD, operations=[operation]) == {lease.job_id}


def fails_a_worker_attempt(store: Session, lease: Lease) -> None:
    operation = Release(lease=lease, outcome="failed", delay_s=60.0, is_counted=True)
    assert store(tasks.release, pod_id=POD, operations=[operation]) == {lease.job_id}


def is_handed_back(store: Session, lease: Lease) -> None:
    operation = Release(lease=lease, outcome="handed_back", is_counted=False)
    assert store(tasks.release, pod_id=POD, operations=[operation]) == {lease.job_id}


def loses_its_pod(store: Session, lease: Lease) -> None:
    taken = store(tasks.take_over, pod_id=POD, deaths_max=3, limit=10)
    assert (taken.freed_count, taken.cancelled_count) == (0, 1)


def is_swept(store: Session, lease: Lease) -> None:
    swept = store(tasks.sweep, silent_s=0.0, limit=10, rng=NoPause())
    assert (swept.retried_count, swept.cancelled_count) == (0, 1)


@pytest.mark.parametrize(
    "ends",
    [
        ends_to_be_tried_again,
        sleeps,
        waits_for_a_breaker,
        waits_for_a_person,
        fails_a_worker_attempt,
        is_handed_back,
        loses_its_pod,
        is_swept,
    ],
)
def test_a_job_that_lost_its_key_while_it_ran_never_runs_after_its_successor(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    ends: Callable[[Session, Lease], None],
) -> None:
    sql(
        database,
        "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, liveness, state)"
        " VALUES ($1, 7, 'p', '1', '{work}', 1, 'lock', 'DEAD')",
        POD,
    )
    job_id = submit(job_key="k")
    (claimed,) = claim(POD)
    successor, last = submit(job_key="k"), submit(job_key="k")
    ends(store, claimed.lease)
    row = job_row(database, job_id)
    assert (row["status"], row["cancelled_by"], row["task_state"]) == ("CANCELLED", "submit", None)
    assert row["cancel_reason"] == f"replaced by job {successor} with the same key 'k'"
    assert job_row(database, successor)["status"] == "CANCELLED"
    assert keys(database) == {last: "k"}
    assert store(retries.due).count == 0
    assert [each.lease.job_id for each in claim(POD)] == [last]
    assert_one_truth(database)


def test_a_replaced_job_that_runs_ends_by_its_pod_when_a_person_cancels_it(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    """Its record shows RETRY, from before the claim."""
    sql(
        database,
        "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, liveness, state)"
        " VALUES ($1, 7, 'p', '1', '{work}', 1, 'lock', 'DEAD')",
        POD,
    )
    job_id = submit(job_key="k")
    (first,) = claim(POD)
    suspend(store, first)
    let_go_by_time(store, job_id)
    (second,) = claim(POD)
    assert second.lease.job_id == job_id
    submit(job_key="k")
    store(jobs.cancel, job_id, by="ana", reason="")
    row = job_row(database, job_id)
    assert (row["finished_at"], row["task_state"]) == (None, "LOCKED"), "its handler runs"
    loses_its_pod(store, second.lease)
    row = job_row(database, job_id)
    assert (row["status"], row["cancelled_by"], row["task_state"]) == ("CANCELLED", "ana", None)
    assert_one_truth(database)


def test_a_job_that_lost_its_key_still_completes(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    job_id = submit(job_key="k")
    (claimed,) = claim(POD)
    submit(job_key="k")
    done = Finish(lease=claimed.lease, status=JobStatus.COMPLETED, result="1")
    assert store(jobs.finish, pod_id=POD, operations=[done]) == {job_id}
    assert job_row(database, job_id)["status"] == "COMPLETED"


def suspend(store: Session, claimed: Claim) -> None:
    ending = Suspend(lease=claimed.lease, delay_s=0.0, is_counted=True, error="overloaded")
    assert store(tasks.suspend, pod_id=POD, operations=[ending]) == {claimed.lease.job_id}


def keys(dsn: str) -> dict[UUID, str | None]:
    """Return the keys of tasks, without their tenant."""
    rows = sql(dsn, "SELECT * FROM cortex_worker.task")
    return {row["job_id"]: row["job_key"] and row["job_key"].rpartition(":")[2] for row in rows}


REPLACED = "SELECT FROM cortex.job_record WHERE replaced_by IS NOT NULL"
WAYS = [
    ends_to_be_tried_again,
    sleeps,
    waits_for_a_breaker,
    waits_for_a_person,
    fails_a_worker_attempt,
    is_handed_back,
]


def test_replaced_jobs_never_begin_after_their_successors(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    """A walk of chance over submits, claims and every way to end an attempt, judged by history."""
    dice = seeded_random()
    running: dict[UUID, Claim] = {}
    for number in range(1200):
        if number >= 120 and sql(database, REPLACED):
            break
        what = dice.choice(["submit", "claim", "claim", "end", "end", "go on", "finish"])
        if what == "submit":
            submit(job_key="k", queue_name=dice.choice([None, "q"]))
        elif what == "claim":
            move_clock(database, 100.0 * number)
            running |= {each.lease.job_id: each for each in claim(POD)}
        elif what == "go on":
            waiting = sql(
                database,
                "SELECT id FROM cortex.job WHERE status::text LIKE 'WAITING%'"
                " AND worker_job_id IS NULL",
            )
            for row in waiting:
                store(retries.retry_now, row["id"], by="ana", reason="", new_id=new_id)
            store(retries.due)
        elif running:
            _, claimed = running.popitem()
            if what == "end":
                dice.choice(WAYS)(store, claimed.lease)
            else:
                done = Finish(lease=claimed.lease, status=JobStatus.COMPLETED, result="1")
                store(jobs.finish, pod_id=POD, operations=[done])
        held = [key for key in keys(database).values() if key is not None]
        assert len(held) <= 1, "one task has the key"
    wrong = sql(
        database,
        "SELECT o.id FROM cortex.job_record o JOIN cortex.job_history mine ON mine.job_id = o.id"
        " JOIN cortex.job_history other ON other.job_id = o.replaced_by"
        " WHERE mine.new = 'RUNNING' AND other.new = 'RUNNING' AND mine.id > other.id",
    )
    assert wrong == []
    assert sql(database, REPLACED), "there is something to judge"
    assert_one_truth(database)
