"""Only the attempt that owns a running job may write to it; jobs are taken from lost pods."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    Lease,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
)
from cortex.durable.tally import Tally
from cortex.postgres.database import Profile, open_database
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import Session, open_session
from cortex.store import breakers, jobs, pods, retries, steps, tasks
from tests.support.eventually import WITHIN_S
from tests.support.records.rows import (
    ATTACH,
    NoPause,
    assert_one_truth,
    attempts,
    job_row,
    move_clock,
    new_id,
)
from tests.support.records.rows import history as history_of
from tests.support.records.rows import steps as steps_of
from tests.support.servers.postgres import run_asyncio, sql

LOCK_KEY = 4_611_686_018_427_387_905
SILENT_S = 300.0
BREAKERS = "SELECT name, probe_by, version FROM cortex.breaker"


def finish(lease: Lease, status: JobStatus = JobStatus.COMPLETED) -> Finish:
    error = "broken" if status is JobStatus.FAILED else None
    return Finish(lease=lease, status=status, error=error, code="x" if error else None)


def step(lease: Lease, seq: int, key: str) -> NumberedStep:
    done = StepDone(
        lease=lease,
        kind=StepKind.STEP,
        key=key,
        digest=b"digest",
        duration_s=0.1,
        output='"out"',
        ended_at=0.0,
        tally=Tally(()),
    )
    return NumberedStep(done, seq, f'{{"seq": {seq}}}')


@attrs.frozen
class Stale:
    """A job whose first attempt was lost and whose second one runs on another pod."""

    old_pod: UUID
    old: Lease
    new_pod: UUID
    new: Lease


@pytest.fixture
def stale(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> Stale:
    old_pod, new_pod = new_id(), new_id()
    submit()
    (first,) = claim(old_pod)
    assert store(steps.commit, pod_id=old_pod, operations=[step(first.lease, 1, "a")])
    move_clock(database, SILENT_S + 1)
    assert sweep(store) == (1, 0)
    assert store(retries.due).count == 1
    (second,) = claim(new_pod)
    return Stale(old_pod, first.lease, new_pod, second.lease)


def test_lost_attempt_cannot_write(database: str, store: Session, stale: Stale) -> None:
    old: dict[str, Any] = {"pod_id": stale.old_pod}
    release = Release(lease=stale.old, outcome="failed", delay_s=1.0, error="late")
    assert store(steps.commit, **old, operations=[step(stale.old, 2, "late")]) == set()
    assert store(jobs.finish, **old, operations=[finish(stale.old)]) == set()
    assert store(jobs.finish, **old, operations=[finish(stale.old, JobStatus.FAILED)]) == set()
    assert store(tasks.release, **old, operations=[release]) == set()
    row = job_row(database, stale.new.job_id)
    assert (row["status"], row["attempt"], row["task_state"]) == ("RUNNING", 2, "LOCKED")
    assert steps_of(database, stale.new.job_id) == [(1, 1, "step", "a")]
    assert attempts(database, stale.new.job_id) == [(1, "lease_expired")]


@pytest.mark.parametrize("pod", ["old_pod", "new_pod"])
@pytest.mark.parametrize("attempt", [1, 3])
def test_the_attempt_alone_is_a_fence(
    database: str, store: Session, stale: Stale, pod: str, attempt: int
) -> None:
    """Also when the same pod has claimed the job again: a pod may lose and regain a job."""
    lease = attrs.evolve(stale.new, attempt=attempt)
    pod_id = getattr(stale, pod)
    release = Release(lease=lease, outcome="failed")
    assert store(steps.commit, pod_id=pod_id, operations=[step(lease, 2, "late")]) == set()
    assert store(jobs.finish, pod_id=pod_id, operations=[finish(lease)]) == set()
    assert store(tasks.release, pod_id=pod_id, operations=[release]) == set()
    assert job_row(database, lease.job_id)["status"] == "RUNNING"


def test_the_attempt_that_has_the_job_can_write(
    database: str, store: Session, stale: Stale
) -> None:
    new: dict[str, Any] = {"pod_id": stale.new_pod}
    job_id = stale.new.job_id
    assert store(steps.commit, **new, operations=[step(stale.new, 2, "b")]) == {job_id}
    assert store(jobs.finish, **new, operations=[finish(stale.new)]) == {job_id}
    assert_one_truth(database)


def test_a_step_sent_twice_is_there_once_and_recognised(
    database: str, store: Session, stale: Stale
) -> None:
    sent = step(stale.new, 2, "b")
    assert store(steps.commit, pod_id=stale.new_pod, operations=[sent]) == {stale.new.job_id}
    assert store(steps.commit, pod_id=stale.new_pod, operations=[sent]) == set()
    assert len(steps_of(database, stale.new.job_id)) == 2
    assert store(steps.recorded, [sent]) == {stale.new.job_id}
    for other in (step(stale.new, 1, "b"), step(stale.new, 2, "c"), step(stale.old, 2, "b")):
        assert store(steps.recorded, [other]) == set()


def test_an_end_sent_twice_is_recognised(database: str, store: Session, stale: Stale) -> None:
    end = finish(stale.new)
    assert store(jobs.finish, pod_id=stale.new_pod, operations=[end]) == {stale.new.job_id}
    assert store(jobs.finish, pod_id=stale.new_pod, operations=[end]) == set()
    assert store(jobs.settled, [end]) == {stale.new.job_id}
    assert store(jobs.settled, [finish(stale.new, JobStatus.FAILED)]) == set()
    assert store(jobs.settled, [finish(stale.old)]) == set()


def test_an_ended_job_takes_no_more_writes(database: str, store: Session, stale: Stale) -> None:
    new: dict[str, Any] = {"pod_id": stale.new_pod}
    store(jobs.finish, **new, operations=[finish(stale.new, JobStatus.FAILED)])
    assert store(steps.commit, **new, operations=[step(stale.new, 2, "b")]) == set()
    assert store(jobs.finish, **new, operations=[finish(stale.new)]) == set()
    assert history_of(database, stale.new.job_id)[-1][:2] == ("RUNNING", "FAILED")
    assert_one_truth(database)


# --- release


def test_a_job_handed_back_counts_no_attempt_and_is_due_at_once(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    job_id = submit()
    backlog = [submit() for _ in range(5)]
    pod_id = new_id()
    (claimed,) = claim(pod_id, limit=1)
    given = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    assert store(tasks.release, pod_id=pod_id, operations=[given]) == {job_id}
    row = job_row(database, job_id)
    assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "READY", 0)
    assert (row["pod_id"], row["heartbeat_at"]) == (None, None)
    (again,) = claim(new_id(), limit=1)
    assert (again.lease.job_id, again.lease.attempt) == (job_id, 2), f"before {backlog}"
    assert again.attempts_spent == 1


def test_a_failed_attempt_counts_and_waits(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    job_id, pod_id = submit(), new_id()
    (claimed,) = claim(pod_id)
    end = Release(lease=claimed.lease, outcome="failed", delay_s=7.4, error="broken")
    store(tasks.release, pod_id=pod_id, operations=[end])
    row = job_row(database, job_id)
    assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "LATER", 1)
    assert sweep(store, silent_s=0.0) == (0, 0), "no zombie between attempts"
    assert claim(new_id()) == []
    move_clock(database, 8)
    assert [c.attempts_spent for c in claim(new_id())] == [2]


# --- take over


def test_only_a_pod_without_its_lock_is_taken_over(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    enter_pod: Callable[[int], UUID],
) -> None:
    pod_id = enter_pod(LOCK_KEY)
    job_id = submit()
    claim(pod_id)
    sql(database, "UPDATE cortex.pod SET has_run = false")  # at its last heartbeat
    asked: dict[str, Any] = {"pod_id": pod_id, "deaths_max": 3, "limit": 100}

    async def while_locked() -> None:
        holder = await asyncpg.connect(database)
        await holder.fetch("SELECT pg_advisory_lock($1)", LOCK_KEY)
        await holder.execute(ATTACH, [LOCK_KEY])
        await asyncio.to_thread(take_nothing, database, asked, is_dead=False)
        await holder.close()

    run_asyncio(while_locked)
    assert job_row(database, job_id)["task_state"] == "LOCKED"
    suspects = store(pods.without_lock, caller=new_id(), settle_s=0.0)
    assert [each.id for each in suspects] == [pod_id]
    taken = store(tasks.take_over, **asked)
    assert (taken.is_dead, taken.is_done, taken.freed_count) == (True, True, 1)
    row = job_row(database, job_id)
    assert (row["task_state"], row["attempts_spent"], row["pod_deaths"]) == ("READY", 0, 1)
    assert attempts(database, job_id) == [(1, "pod_died")]
    assert sql(database, "SELECT has_run FROM cortex.pod")[0]["has_run"], "an attempt names it"
    assert store(tasks.take_over, **asked).freed_count == 0, "there is nothing left to take"


def test_pod_with_a_newer_heartbeat_keeps_its_jobs_without_a_lock(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    enter_pod: Callable[[int], UUID],
) -> None:
    pod_id, job_id = enter_pod(LOCK_KEY), submit()
    claim(pod_id)
    (suspect,) = store(pods.without_lock, caller=new_id(), settle_s=0.0)
    sql(database, "UPDATE cortex.pod SET heartbeat_at = cortex.now()")
    asked: dict[str, Any] = {"pod_id": pod_id, "deaths_max": 3, "limit": 9}
    assert not store(tasks.take_over, **asked, heartbeat_at=suspect.heartbeat_at).is_dead
    assert job_row(database, job_id)["task_state"] == "LOCKED"
    (suspect,) = store(pods.without_lock, caller=new_id(), settle_s=0.0)
    assert store(tasks.take_over, **asked, heartbeat_at=suspect.heartbeat_at).freed_count == 1


def test_the_probe_of_a_breaker_is_free_once_its_pod_is_taken_over(
    database: str, store: Session, enter_pod: Callable[[int], UUID]
) -> None:
    dead, alive = enter_pod(LOCK_KEY), new_id()
    probers = {"llm:dead": dead, "llm:alive": alive}
    for name in probers:
        store(breakers.force_open, name, by="ana", reason="down", for_s=1.0)
    move_clock(database, 2.0)
    for name, pod_id in probers.items():
        _, probe = store(breakers.take_probe, name, pod_id=pod_id, lease_s=3_600.0)
        assert probe == 1
    versions = {row["name"]: row["version"] for row in sql(database, BREAKERS)}
    store(tasks.take_over, pod_id=dead, deaths_max=3, limit=9)
    rows = {row["name"]: row for row in sql(database, BREAKERS)}
    assert (rows["llm:dead"]["probe_by"], rows["llm:alive"]["probe_by"]) == (None, alive)
    assert rows["llm:dead"]["version"] > max(versions.values()), "so that all pods learn it"
    _, probe = store(breakers.take_probe, "llm:dead", pod_id=alive, lease_s=30.0)
    assert probe == 2


def test_no_pod_is_suspected_soon_after_the_servers_start(
    store: Session, enter_pod: Callable[[int], UUID]
) -> None:
    enter_pod(LOCK_KEY)
    assert store(pods.without_lock, caller=new_id(), settle_s=1e9) == []


def test_the_jobs_of_a_dead_pod_are_taken_in_batches(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    enter_pod: Callable[[int], UUID],
) -> None:
    pod_id = enter_pod(LOCK_KEY)
    for _ in range(5):
        submit()
    claim(pod_id)
    asked: dict[str, Any] = {"pod_id": pod_id, "deaths_max": 3, "limit": 2}
    taken = [store(tasks.take_over, **asked) for _ in range(3)]
    assert [t.freed_count for t in taken] == [2, 2, 1]
    assert [t.is_done for t in taken] == [False, False, True]
    (pod,) = sql(database, "SELECT state FROM cortex.pod")
    assert pod["state"] == "DEAD"


def test_locked_task_of_a_dead_pod_is_taken_on_the_next_pass(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    enter_pod: Callable[[int], UUID],
) -> None:
    """Someone cancels a job of the dead pod just then: its job must not wait for the sweep."""
    pod_id = enter_pod(LOCK_KEY)
    job_id = submit()
    claim(pod_id)
    asked: dict[str, Any] = {"pod_id": pod_id, "deaths_max": 3, "limit": 100}

    async def while_held() -> None:
        holder = await asyncpg.connect(database)
        transaction = holder.transaction()
        await transaction.start()
        await holder.fetch("SELECT FROM cortex_worker.task WHERE job_id = $1 FOR UPDATE", job_id)
        await asyncio.to_thread(take_nothing, database, asked, is_dead=True)
        await transaction.rollback()
        await holder.close()

    run_asyncio(while_held)
    assert job_row(database, job_id)["task_state"] == "LOCKED"
    assert store(tasks.take_over, **asked).freed_count == 1


# --- sweep


def test_a_silent_pod_loses_its_jobs_oldest_first(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    ids = [submit() for _ in range(3)]
    for number in range(3):
        move_clock(database, 10.0 * number)
        claim(new_id(), limit=1)
    move_clock(database, SILENT_S + 5)
    assert sweep(store) == (1, 0)
    move_clock(database, SILENT_S + 60)
    assert sweep(store, limit=1) == (1, 0)
    states = [job_row(database, each)["status"] for each in ids]
    assert states == ["RETRY", "RETRY", "RUNNING"]
    assert sweep(store) == (1, 0)


def test_a_sweep_of_the_last_attempt_fails_the_job_in_words(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    job_id = submit(max_retries=1)
    for number in range(1, 3):
        (claimed,) = claim(new_id())
        move_clock(database, number * (SILENT_S + 1))
        assert sweep(store) == ((1, 0) if number == 1 else (0, 1))
        assert claimed.lease.attempt == number
        store(retries.due)
    row = job_row(database, job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "lease_expired")
    assert (row["error_class"], row["retry_count"]) == ("TRANSIENT_INFRA", 1)
    assert row["heartbeat_at"] is None
    assert "fell silent in attempt 2, after 1 of 1 retries" in row["error_message"]
    assert "last heartbeat 20" in row["error_message"]
    assert [row["job_id"] for row in sql(database, "SELECT * FROM cortex.dead_letter")] == [job_id]
    text = "SELECT data->>'message' FROM cortex.fact WHERE subtype = 'lease_expired' ORDER BY id"
    assert [row[0] for row in sql(database, text)] == ["its pod fell silent", row["error_message"]]
    assert_one_truth(database)


def test_heartbeats_keep_a_job(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
    enter_pod: Callable[[int], UUID],
) -> None:
    pod_id = enter_pod(LOCK_KEY)
    job_id = submit()
    claim(pod_id)
    move_clock(database, SILENT_S - 1)
    sql(
        database,
        "UPDATE cortex_worker.task SET heartbeat_at = cortex.now() WHERE job_id = $1",
        job_id,
    )
    move_clock(database, SILENT_S + 10)
    assert sweep(store) == (0, 0)


def sweep(store: Session, *, silent_s: float = SILENT_S, limit: int = 100) -> tuple[int, int]:
    """Sweep, each pause as short as chance may make it; how many are in RETRY, and failed."""
    swept = store(tasks.sweep, silent_s=silent_s, limit=limit, rng=NoPause())
    return swept.retried_count, swept.failed_count


def take_nothing(database: str, asked: dict[str, Any], *, is_dead: bool) -> None:
    """Look at a pod whose jobs cannot be taken just now; in a thread with a session of its own."""
    with open_session(Profile(dsn=database, hot_path=True)) as other:
        taken = other(tasks.take_over, **asked)
    assert (taken.is_dead, taken.freed_count) == (is_dead, 0)
    assert not taken.is_done, "nothing is done while a job of it is left"


def test_a_release_that_waits_for_a_cancel_sees_it(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    """Else the job would wait out its whole back-off, owned by no pod that could end it."""
    job_id = submit()
    pod_id = new_id()
    (claimed,) = claim(pod_id)
    release = Release(lease=claimed.lease, outcome="failed", delay_s=600.0, error="broken")

    async def race() -> None:
        settings = Profile(dsn=database).settings
        connection = await asyncpg.connect(database, server_settings=settings)
        db = await open_database(Profile(dsn=database, hot_path=True), rng=Random(1))
        try:
            async with connection.transaction():
                await connection.fetch(query_text("jobs.cancel"), [job_id], "ana", "why")
                releasing = asyncio.create_task(
                    tasks.release(db, pod_id=pod_id, operations=[release])
                )
                await eventually_blocked(connection)
            assert await releasing == {job_id}
        finally:
            connection.terminate()
            await db.close()

    run_asyncio(race)
    row = job_row(database, job_id)
    assert row["cancel_requested_at"] is not None
    assert row["task_state"] == "READY"


async def eventually_blocked(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Wait until another session waits for a lock that this one holds."""
    async with asyncio.timeout(WITHIN_S):
        while not await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE datname = current_database() AND NOT granted)"
        ):
            await connection.fetchval("SELECT pg_sleep(0.01)")


@pytest.mark.parametrize("by", ["takeover", "sweep", "release"])
def test_the_task_of_a_job_that_has_ended_is_deleted(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    enter_pod: Callable[..., UUID],
    by: str,
) -> None:
    """A hand in the database, or a restore, may have left it."""
    pod_id = enter_pod(LOCK_KEY)
    job_id = submit()
    (claimed,) = store(tasks.claim, pod_id=pod_id, types=["work"], limit=1)
    lease = claimed.lease
    sql(database, "CREATE TABLE public.left_over AS SELECT * FROM cortex_worker.task")
    store(jobs.finish, pod_id=pod_id, operations=[finish(lease)])
    sql(database, "INSERT INTO cortex_worker.task SELECT * FROM public.left_over")
    record = "SELECT * FROM cortex.job_record WHERE id = $1"
    before = dict(sql(database, record, job_id)[0])
    if by == "takeover":
        taken = store(tasks.take_over, pod_id=pod_id, deaths_max=3, limit=9)
        assert (taken.is_done, taken.freed_count, taken.cancelled_count) == (True, 0, 0)
    elif by == "sweep":
        move_clock(database, 2 * SILENT_S)
        assert sweep(store) == (0, 0)
    else:
        ending = Release(lease=lease, outcome="handed_back", is_counted=False)
        store(tasks.release, pod_id=pod_id, operations=[ending])
    assert sql(database, "SELECT FROM cortex_worker.task") == []
    assert dict(sql(database, record, job_id)[0]) == before
