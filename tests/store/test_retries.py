"""Jobs in RETRY: which continue when, each once across all pods, and one now for a person."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import Claim, Finish, JobStatus, Release, Suspend
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import Session
from cortex.store import jobs, retries, tasks
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import JOB_TYPE
from tests.support.records.rows import (
    history,
    hold_turns,
    job_row,
    move_clock,
    new_id,
    seeded_random,
    stop_clock,
    submit_many,
)
from tests.support.servers.postgres import run_asyncio, sql

POD = UUID(int=7)
LLM = "llm:m"
RETIRED = "retired"
"""A job type that no pod runs any more."""

Suspended = Callable[..., UUID]


def claim(store: Session, *types: str, limit: int = 100) -> list[Claim]:
    store(tasks.promote)
    known = list(types or [JOB_TYPE])
    return store(tasks.claim, pod_id=POD, types=known, limit=limit, config_id=1)


@pytest.fixture
def suspended(store: Session, submit: Callable[..., UUID]) -> Suspended:
    """Makes a job that was tried once and is in RETRY, or waits for a person; returns its id."""

    def suspend_one(
        delay_s: float | None = 60.0, *, waiting_on: str | None = None, **fields: Any
    ) -> UUID:
        job_id = submit(**fields)
        (claimed,) = claim(store, JOB_TYPE, RETIRED)
        ending = Suspend(
            lease=claimed.lease,
            delay_s=delay_s,
            is_counted=waiting_on is None,
            waiting_on=waiting_on,
            error="overloaded",
        )
        assert store(tasks.suspend, pod_id=POD, operations=[ending]) == {job_id}
        return job_id

    return suspend_one


def set_breaker(dsn: str, state: str, name: str = LLM, **columns: Any) -> None:
    """Write a breaker in a state; seconds count from now, by the clock that is not moved."""
    row = {"open_until_s": None, "probe_until_s": None, "forced_by": None} | columns
    sql(
        dsn,
        """
        INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe, opened_at,
                                    open_until, probe_by, probe_until, forced_by, forced_reason,
                                    forced_at)
        SELECT $1, $2, 3, 0, 3, 0, CASE WHEN $2 <> 'CLOSED' THEN now() END,
               now() + $3::float8 * interval '1 second',
               CASE WHEN $4::float8 IS NOT NULL THEN cortex.uuid7() END,
               now() + $4::float8 * interval '1 second', $5::text,
               CASE WHEN $5 IS NOT NULL THEN 'why' END, CASE WHEN $5 IS NOT NULL THEN now() END
        ON CONFLICT (name) DO UPDATE SET (state, opened_at, open_until, probe_by, probe_until,
                                          forced_by, forced_reason, forced_at)
            = (excluded.state, excluded.opened_at, excluded.open_until, excluded.probe_by,
               excluded.probe_until, excluded.forced_by, excluded.forced_reason, excluded.forced_at)
        """,
        name,
        state,
        row["open_until_s"],
        row["probe_until_s"],
        row["forced_by"],
    )


def with_tasks(dsn: str) -> set[UUID]:
    return {row["job_id"] for row in sql(dsn, "SELECT job_id FROM cortex_worker.task")}


def assert_tasks_fit(dsn: str) -> None:
    """Each job names its task, and no job that has ended has one."""
    wrong = """
        SELECT j.id, j.status, j.worker_job_id, t.id AS task_id
        FROM cortex.job j FULL JOIN cortex_worker.task t ON t.job_id = j.id
        WHERE j.worker_job_id IS DISTINCT FROM t.id OR (j.finished_at IS NOT NULL AND t.id > 0)
    """
    assert [tuple(row) for row in sql(dsn, wrong)] == []


# --- what is due


def test_due_job_resumes_under_a_new_attempt(
    store: Session, database: str, suspended: Suspended
) -> None:
    soon, later = suspended(60.0), suspended(3600.0)
    assert store(retries.due).count == 0
    move_clock(database, 61)
    assert store(retries.due).count == 1
    assert store(retries.due).count == 0
    assert with_tasks(database) == {soon}
    assert_tasks_fit(database)
    (claimed,) = claim(store)
    assert (claimed.lease.job_id, claimed.lease.attempt) == (soon, 2)
    assert (claimed.attempts_spent, claimed.max_attempts) == (1, 3)
    assert history(database, soon)[-2:] == [("RUNNING", "RETRY", 1), ("RETRY", "RUNNING", 2)]
    assert job_row(database, later)["status"] == "RETRY"


def test_a_job_of_a_named_queue_waits_for_its_turn(
    store: Session, database: str, suspended: Suspended
) -> None:
    job_id = suspended(0.0, queue_name="mail", priority=-3)
    assert store(retries.due).count == 1
    (row,) = sql(database, "SELECT * FROM cortex_worker.task")
    assert (row["job_id"], row["state"], row["queue_name"]) == (job_id, "QUEUED", "mail")
    assert (row["priority"], row["attempt"], row["attempts_spent"]) == (-3, 1, 0)
    assert claim(store)[0].lease.job_id == job_id


def test_retries_due_earliest_are_released_first(
    store: Session, database: str, suspended: Suspended
) -> None:
    ids = [suspended(float(10 * n), waiting_on=on) for n, on in enumerate([None, LLM, None, LLM])]
    move_clock(database, 100)
    assert store(retries.due, limit=3).count == 3
    assert with_tasks(database) == set(ids[:3])
    assert store(retries.due, limit=3).count == 1


CLOSED_TO_ALL: list[dict[str, Any]] = [
    {"state": "OPEN", "open_until_s": 50.0},
    {"state": "OPEN", "forced_by": "ana"},
    {"state": "HALF_OPEN", "open_until_s": -50.0, "probe_until_s": 50.0},
]
OPEN_TO_ONE: list[dict[str, Any]] = [
    {"state": "OPEN", "open_until_s": -1.0},
    {"state": "HALF_OPEN", "open_until_s": -50.0},
    {"state": "HALF_OPEN", "open_until_s": -50.0, "probe_until_s": -1.0},
]


@pytest.mark.parametrize("breaker", CLOSED_TO_ALL)
def test_closed_off_breaker_holds_its_jobs_and_no_others(
    store: Session, database: str, suspended: Suspended, breaker: dict[str, Any]
) -> None:
    suspended(0.0, waiting_on=LLM)
    other = suspended(0.0, waiting_on="llm:other")
    alone = suspended(0.0)
    set_breaker(database, **breaker)
    assert store(retries.due).count == 2
    assert with_tasks(database) == {other, alone}


@pytest.mark.parametrize("breaker", OPEN_TO_ONE)
def test_one_job_probes_until_it_is_claimed(
    store: Session, database: str, suspended: Suspended, breaker: dict[str, Any]
) -> None:
    first, *_ = [suspended(0.0, waiting_on=LLM) for _ in range(5)]
    set_breaker(database, **breaker)
    assert store(retries.due).count == 1
    assert store(retries.due).count == 0
    assert with_tasks(database) == {first}
    assert len(claim(store)) == 1
    set_breaker(database, "HALF_OPEN", open_until_s=-50.0, probe_until_s=50.0)
    assert store(retries.due).count == 0


@pytest.mark.parametrize("stuck", [{"type": RETIRED}, {"queue_name": "mail"}])
def test_unclaimed_prober_holds_the_others_for_ten_seconds(
    store: Session,
    database: str,
    submit: Callable[..., UUID],
    suspended: Suspended,
    stuck: dict[str, str],
) -> None:
    first = suspended(0.0, waiting_on=LLM, **stuck)
    others = {suspended(0.0, waiting_on=LLM) for _ in range(3)}
    if "queue_name" in stuck:
        submit(**stuck)
        claim(store)  # the next of the queue runs for long
    set_breaker(database, "OPEN", open_until_s=-1.0)
    before = with_tasks(database)
    at = sql(database, "SELECT cortex.now() AS at")[0]["at"] + timedelta(seconds=100)
    stop_clock(database, at)  # they were due long ago
    assert store(retries.due).count == 1
    assert with_tasks(database) - before == {first}
    stop_clock(database, at + timedelta(seconds=9))
    assert store(retries.due).count == 0
    stop_clock(database, at + timedelta(seconds=11))
    assert store(retries.due).count == 1
    (claimed,) = claim(store)
    assert claimed.lease.job_id in others


@pytest.mark.parametrize("paused", ["other", RETIRED])
def test_claimable_job_is_chosen_to_probe(
    store: Session, database: str, submit: Any, suspended: Suspended, paused: str
) -> None:
    pod = "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, state) "
    values = "VALUES (cortex.uuid7(), $1, 'pod', '0', ARRAY[$2], 1, $3)"
    sql(database, pod + values, 1, JOB_TYPE, "READY")
    sql(database, pod + values, 2, RETIRED, "READY" if paused == RETIRED else "STOPPED")
    suspended(0.0, waiting_on=LLM, queue_name="busy")
    submit(queue_name="busy")
    claim(store)
    running = with_tasks(database)
    for _ in range(25):  # more than are looked at one by one
        suspended(0.0, waiting_on=LLM, type=RETIRED)
    at_once = suspended(0.0, waiting_on=LLM)
    sql(database, "INSERT INTO cortex_worker.pause VALUES ('type', $1, 'a', now(), 'b')", paused)
    set_breaker(database, "OPEN", open_until_s=-1.0)
    assert store(retries.due).count == 1
    assert with_tasks(database) - running == {at_once}


def test_head_of_an_idle_queue_probes_before_a_job_behind_others(
    store: Session, database: str, submit: Callable[..., UUID], suspended: Suspended
) -> None:
    sql(
        database,
        "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots) "
        "VALUES (cortex.uuid7(), 1, 'pod', '0', ARRAY[$1], 1)",
        JOB_TYPE,
    )
    suspended(0.0, waiting_on=LLM, queue_name="busy")
    idle = suspended(0.0, waiting_on=LLM, queue_name="idle")
    submit(queue_name="busy")
    claim(store)
    running = with_tasks(database)
    set_breaker(database, "OPEN", open_until_s=-1.0)
    assert store(retries.due).count == 1
    assert with_tasks(database) - running == {idle}


def test_closed_breaker_releases_all_its_waiting_jobs(
    store: Session, database: str, suspended: Suspended
) -> None:
    ids = [suspended(3600.0, waiting_on=LLM) for _ in range(5)]
    other = suspended(3600.0)
    assert store(retries.due).count == 0
    set_breaker(database, "CLOSED")
    assert [store(retries.due, limit=3).count for _ in range(3)] == [3, 2, 0]
    assert with_tasks(database) == set(ids)
    assert job_row(database, other)["worker_job_id"] is None


def test_without_a_breaker_of_that_name_time_decides(
    store: Session, database: str, suspended: Suspended
) -> None:
    suspended(60.0, waiting_on=LLM)
    assert store(retries.due).count == 0
    move_clock(database, 61)
    assert store(retries.due).count == 1


@pytest.mark.parametrize("letting_go", ["due", "now"])
def test_failed_attempts_that_a_wait_did_not_excuse_are_kept(
    store: Session, database: str, suspended: Suspended, letting_go: str
) -> None:
    job_id = suspended(0.0, waiting_on=LLM)
    sql(database, "UPDATE cortex.job_record SET attempts_kept = 2 WHERE id = $1", job_id)
    if letting_go == "due":
        assert store(retries.due).count == 1
    else:
        store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
    assert job_row(database, job_id)["attempts_spent"] == 2
    assert claim(store)[0].attempts_spent == 3


@pytest.mark.parametrize("waiting_on", ["budget:job:x:usd:day", None])
def test_job_waiting_for_a_day_or_a_time_resumes_by_time(
    store: Session, database: str, suspended: Suspended, waiting_on: str | None
) -> None:
    job_id = suspended(60.0, waiting_on=waiting_on)
    assert store(retries.due).count == 0
    move_clock(database, 61)
    assert store(retries.due).count == 1
    assert with_tasks(database) == {job_id}


def test_job_waiting_for_a_person_is_never_due(store: Session, suspended: Suspended) -> None:
    suspended(None, waiting_on="budget:x")
    assert store(retries.due).count == 0


# --- many at once


def in_many_pods(dsn: str, count: int, work: Callable[[Database], Any]) -> list[Any]:
    async def run() -> list[Any]:
        profile = Profile(dsn=dsn, hot_path=True, connections_max=2)
        pods = [await open_database(profile, rng=seeded_random()) for _ in range(count)]
        try:
            return await asyncio.gather(*(work(pod) for pod in pods))
        finally:
            for pod in pods:
                await pod.close()

    return run_asyncio(run)


def many_in_retry(dsn: str, count: int, waiting_on: str | None = None) -> None:
    """Make jobs that are due, without the life before."""
    submit_many(dsn, count, JOB_TYPE, {})
    sql(dsn, "UPDATE cortex.job_record SET status = 'RUNNING'")
    sql(dsn, "DELETE FROM cortex_worker.task")
    sql(
        dsn,
        "UPDATE cortex.job_record SET status = 'RETRY', next_retry_at = now(), "
        "worker_job_id = NULL, waiting_on = $1",
        waiting_on,
    )


def test_ten_pods_at_once_give_each_job_one_task(database: str) -> None:
    many_in_retry(database, 300)

    async def drain(db: Database) -> int:
        count = 0
        left = "SELECT FROM cortex.job WHERE worker_job_id IS NULL"
        while await asyncio.to_thread(sql, database, left):  # another pod may be at it
            count += (await retries.due(db, limit=20)).count
        return count

    assert sum(in_many_pods(database, 10, drain)) == 300
    assert len(with_tasks(database)) == 300
    assert_tasks_fit(database)


def test_ten_pods_at_once_send_one_job_to_probe(database: str) -> None:
    many_in_retry(database, 30, LLM)
    set_breaker(database, "OPEN", open_until_s=-1.0)

    async def look(db: Database) -> int:
        return sum([(await retries.due(db)).count for _ in range(5)])

    assert sum(in_many_pods(database, 10, look)) == 1
    assert_tasks_fit(database)


def test_one_pod_polls_retries_at_a_time(
    store: Session, database: str, suspended: Suspended
) -> None:
    suspended(0.0)

    async def while_another_is_at_it() -> int:
        other = await asyncpg.connect(database)
        db = await open_database(Profile(dsn=database, hot_path=True), rng=seeded_random())
        try:
            async with other.transaction():
                await other.fetch(hold_turns("retries"))
                return (await retries.due(db)).count
        finally:
            await db.close()
            await other.close()

    assert run_asyncio(while_another_is_at_it) == 0
    assert store(retries.due).count == 1


async def until_it_waits_for_a_lock(connection: "asyncpg.Connection[Any]", query: str) -> None:
    waits = """
        SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE $1 AND datname = current_database()
    """
    async with asyncio.timeout(WITHIN_S):
        while not await connection.fetchval(waits, f"%{query}%"):
            await connection.execute("SELECT pg_sleep(0.01)")


@pytest.mark.parametrize("letting_go", ["retries.due", "retries.now"])
def test_a_job_cancelled_while_it_gets_its_task_keeps_none(
    store: Session, database: str, suspended: Suspended, letting_go: str
) -> None:
    job_id = suspended(0.0)
    given = (200,) if letting_go == "retries.due" else ([job_id], "bob", "why", None)

    async def race() -> jobs.Cancellation:
        one, two = await asyncpg.connect(database), await asyncpg.connect(database)
        db = await open_database(Profile(dsn=database), rng=seeded_random())
        try:
            async with one.transaction():
                await one.fetch(query_text(letting_go), *given)
                cancelling = asyncio.create_task(jobs.cancel(db, job_id, by="ana", reason="no"))
                await until_it_waits_for_a_lock(two, "worker_job_id AS task_id")
            return await cancelling
        finally:
            for opened in (one, two, db):
                await opened.close()

    assert run_asyncio(race).after is JobStatus.CANCELLED
    assert with_tasks(database) == set()
    assert_tasks_fit(database)
    assert claim(store) == []


def test_racing_cancels_and_releases_leave_no_task_behind(database: str) -> None:
    many_in_retry(database, 200)
    ids = [row["id"] for row in sql(database, "SELECT id FROM cortex.job ORDER BY random()")]
    turns = iter(range(4))

    async def work(db: Database) -> None:
        turn = next(turns)
        if turn < 2:
            for job_id in ids[turn:100:2]:
                with suppress(ConflictError):
                    await jobs.cancel(db, job_id, by="ana", reason="")
        for _ in range(40):
            await retries.due(db, limit=10)
            claimed = await tasks.claim(
                db, pod_id=UUID(int=turn + 1), types=[JOB_TYPE], limit=5, config_id=1
            )
            ends = [Finish(lease=c.lease, status=JobStatus.COMPLETED, result="1") for c in claimed]
            await jobs.finish(db, pod_id=UUID(int=turn + 1), operations=ends)

    in_many_pods(database, 4, work)
    assert_tasks_fit(database)
    assert job_row(database, ids[150])["status"] == "COMPLETED"


# --- one at once


def facts(dsn: str, job_id: UUID) -> list[dict[str, Any]]:
    query = "SELECT type, subtype, source, data FROM cortex.fact WHERE job_id = $1 ORDER BY id"
    return [dict(row) | {"data": json.loads(row["data"])} for row in sql(dsn, query, job_id)]


@pytest.mark.parametrize("waiting_on", [None, LLM])
def test_retry_now_releases_a_job_at_once_and_is_recorded(
    store: Session, database: str, suspended: Suspended, waiting_on: str | None
) -> None:
    job_id = suspended(3600.0, waiting_on=waiting_on)
    set_breaker(database, "OPEN", open_until_s=3600.0)
    due_at = job_row(database, job_id)["next_retry_at"]
    done = store(retries.retry_now, job_id, by="ana", reason="fixed", new_id=new_id)
    assert done.status is JobStatus.RETRY
    (fact,) = facts(database, job_id)
    output = fact.pop("data")
    assert fact == {"type": "lifecycle", "subtype": "retried_now", "source": waiting_on}
    assert (output["by"], output["reason"], output["status"]) == ("ana", "fixed", "RETRY")
    assert output["due_at"][:19] == due_at.isoformat()[:19]
    with pytest.raises(ConflictError, match="is due already"):
        store(retries.retry_now, job_id, by="bob", reason="", new_id=new_id)
    assert len(facts(database, job_id)) == 1
    assert_tasks_fit(database)
    (claimed,) = claim(store)
    assert claimed.lease.attempt == 2


@pytest.mark.parametrize("queue_name", [None, "mail"])
def test_a_job_between_two_worker_attempts_is_due_at_once(
    store: Session, database: str, submit: Callable[..., UUID], queue_name: str | None
) -> None:
    job_id = submit(queue_name=queue_name)
    (claimed,) = claim(store)
    ending = Release(lease=claimed.lease, outcome="failed", delay_s=3600.0, error="reset")
    store(tasks.release, pod_id=POD, operations=[ending])
    assert claim(store) == []
    done = store(retries.retry_now, job_id, by="ana", reason="fixed", new_id=new_id)
    assert done.status is JobStatus.RUNNING
    assert [fact["subtype"] for fact in facts(database, job_id)] == ["retried_now"]
    (again,) = claim(store)
    assert (again.lease.attempt, again.attempts_spent) == (2, 2)
    with pytest.raises(ConflictError, match="is running just now"):
        store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)


def test_an_attempt_that_ends_meanwhile_is_tried_again_at_once(
    store: Session, database: str, submit: Callable[..., UUID]
) -> None:
    job_id = submit()
    claim(store)

    async def race() -> None:
        pod, person, watcher = [await asyncpg.connect(database) for _ in range(3)]
        try:
            async with pod.transaction():
                ended = ([job_id], [1], [0], [60.0], ["failed"], ["reset"], *[[None]] * 4)
                await pod.fetch(query_text("tasks.release"), POD, *ended)
                query = query_text("retries.now")
                retrying = asyncio.create_task(person.fetch(query, [job_id], "ana", "why", None))
                await until_it_waits_for_a_lock(watcher, "before AS MATERIALIZED")
            assert (await retrying)[0]["is_let_go"]
        finally:
            for connection in (pod, person, watcher):
                await connection.close()

    run_asyncio(race)
    (claimed,) = claim(store)
    assert (claimed.lease.attempt, claimed.attempts_spent) == (2, 2)


def test_retry_now_notifies_pods(
    store: Session, database: str, submit: Callable[..., UUID], suspended: Suspended
) -> None:
    in_retry = suspended(3600.0)
    released = submit()
    (claimed,) = claim(store)
    ending = Release(lease=claimed.lease, outcome="failed", delay_s=3600.0, error="reset")
    store(tasks.release, pod_id=POD, operations=[ending])

    async def hear() -> list[str]:
        heard: list[str] = []
        listener = await asyncpg.connect(database)
        await listener.add_listener("cortex_task", lambda *args: heard.append(args[-1]))
        for job_id in (in_retry, released):
            await asyncio.to_thread(
                store, retries.retry_now, job_id, by="ana", reason="", new_id=new_id
            )
        async with asyncio.timeout(WITHIN_S):
            while len(heard) < 2:
                await listener.fetch("SELECT 1")
        await listener.close()
        return heard

    assert run_asyncio(hear) == ["ready", "ready"]


def test_retry_now_refuses_other_jobs_with_a_hint(
    store: Session, database: str, submit: Callable[..., UUID], suspended: Suspended
) -> None:
    def refused(job_id: UUID) -> tuple[str, str]:
        with pytest.raises(ConflictError) as error:
            store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
        return error.value.message, error.value.hint or ""

    def ended(**end: Any) -> UUID:
        job_id = submit()
        (claimed,) = claim(store)
        store(jobs.finish, pod_id=POD, operations=[Finish(lease=claimed.lease, **end)])
        return job_id

    assert "is COMPLETED" in refused(ended(status=JobStatus.COMPLETED, result="1"))[0]
    message, hint = refused(suspended(None, waiting_on="budget:tenant:t:usd:day"))
    assert "waits for budget:tenant:t:usd:day" in message
    assert hint == "cortex budgets raise tenant:t:usd:day --to AMOUNT --reason TEXT"
    assert "waits for llm:m" in refused(suspended(None, waiting_on="llm:m"))[0]
    pending = submit(delay_s=3600.0)
    assert "is PENDING" in refused(pending)[0]
    assert facts(database, pending) == []
    with pytest.raises(NotFoundError):
        store(retries.retry_now, new_id(), by="ana", reason="", new_id=new_id)
    assert_tasks_fit(database)


def test_a_person_and_the_runner_at_once_make_one_task(database: str) -> None:
    many_in_retry(database, 100)
    ids = [row["id"] for row in sql(database, "SELECT id FROM cortex.job ORDER BY id")]
    turns = iter(range(3))

    async def work(db: Database) -> int:
        if next(turns):
            return sum([(await retries.due(db, limit=10)).count for _ in range(15)])
        count = 0
        for job_id in ids:
            try:
                await retries.retry_now(db, job_id, by="ana", reason="", new_id=new_id)
                count += 1
            except ConflictError:
                continue
        return count

    assert sum(in_many_pods(database, 3, work)) == 100
    assert_tasks_fit(database)


def test_retry_now_resumes_a_job_that_waits_for_a_person(
    database: str, store: Session, suspended: Suspended
) -> None:
    job_id = suspended(None, waiting_on="person:llm:m")
    assert store(retries.due).count == 0
    done = store(retries.retry_now, job_id, by="ana", reason="the bill is paid", new_id=new_id)
    assert done.status is JobStatus.WAITING_FOR_APPROVAL
    (again,) = claim(store)
    assert again.lease.job_id == job_id
    row = job_row(database, job_id)
    assert (row["status"], row["waiting_on"]) == ("RUNNING", None)
