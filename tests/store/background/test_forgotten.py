"""Rows that housekeeping deletes without a retention period: upkeep jobs, unreferenced pods."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.job import UPKEEP
from cortex.postgres.session import Session
from cortex.store import codes, pods
from cortex.store.background import retention
from cortex.store.background.housekeeping import POD_KEPT_S, UPKEEP_KEPT_S
from cortex.store.codes import Code
from tests.support.life import Life
from tests.support.records.rows import assert_one_truth, move_clock
from tests.support.servers.postgres import sql

SWEEP, EXPIRE = "sweep_zombies", "expire_approvals"
DAY_S = 86_400.0


@pytest.fixture
def life(store: Session, database: str) -> Life:
    life = Life(store, database)
    life.sql(
        "INSERT INTO cortex.schedule (name, cron, zone, type, origin, changed_by) "
        "VALUES ('mine', '* * * * *', 'UTC', 'sweep_zombies', 'file', 'ana')"
    )
    life.sql("UPDATE cortex.schedule SET next_at = '2100-01-01', due_at = '2100-01-01'")
    return life


def fired(life: Life, schedule: str, *, hours_ago: float, error: str | None = None) -> UUID:
    """A job of a schedule that ended so long ago."""
    job_type = schedule if schedule in UPKEEP else SWEEP
    job_id, pod = life.job(job_type), life.pod("p", SWEEP, EXPIRE)
    life.finish(pod, life.claim(pod, job_type), error=error)
    past = timedelta(hours=hours_ago)
    life.sql(
        "UPDATE cortex.job_record SET finished_at = finished_at - $2::interval WHERE id = $1",
        job_id,
        past,
    )
    life.sql(
        "INSERT INTO cortex.schedule_instant (schedule, instant, outcome, job_id, at, ended_at) "
        "SELECT $1, t, 'SUBMITTED', $2, t, t FROM (SELECT cortex.now() - $3::interval AS t) past",
        schedule,
        job_id,
        past,
    )
    return job_id


def jobs(life: Life) -> set[UUID]:
    return {row["id"] for row in sql(life.dsn, "SELECT id FROM cortex.job_record")}


def forget(store: Session, limit: int = 100) -> int:
    return store(retention.forget_upkeep, kept_s=UPKEEP_KEPT_S, limit=limit)


def test_housekeeping_forgets_completed_upkeep_jobs_after_a_day(store: Session, life: Life) -> None:
    stays = {
        fired(life, SWEEP, hours_ago=23),
        fired(life, SWEEP, hours_ago=49, error="it broke"),
        fired(life, "mine", hours_ago=49),
    }
    old = [fired(life, name, hours_ago=25 + n) for name in UPKEEP for n in range(2)]
    assert jobs(life) == stays | set(old)
    assert (forget(store, 1), forget(store), forget(store)) == (2, 2, 0)
    assert jobs(life) == stays
    rows = sql(
        life.dsn,
        "SELECT job_id FROM cortex.job_history UNION SELECT job_id FROM cortex.schedule_instant",
    )
    assert {row["job_id"] for row in rows} == stays
    assert_one_truth(life.dsn)


def test_housekeeping_never_forgets_rows_younger_than_a_day(store: Session, life: Life) -> None:
    """Whatever a caller asks: the role of pods cannot delete what is young."""
    fired(life, SWEEP, hours_ago=23)
    life.pod()
    life.sql("UPDATE cortex.pod SET state = 'STOPPED', has_run = false, ended_at = cortex.now()")
    assert store(retention.forget_upkeep, kept_s=0, limit=9) == 0
    assert store(pods.forget, kept_s=0, limit=9) == 0


def names(life: Life) -> set[str]:
    return {row["name"] for row in sql(life.dsn, "SELECT name FROM cortex.pod")}


def retired(life: Life, table: str) -> None:
    """Delete all rows of a table."""
    sql(life.dsn, f"ALTER TABLE cortex.{table} DISABLE TRIGGER USER")
    sql(life.dsn, f"DELETE FROM cortex.{table}")  # noqa: S608 -- named below


def test_pods_that_no_record_names_go_a_day_after_they_ended(store: Session, life: Life) -> None:
    life.type()
    ran, idle, failing = (life.pod(name) for name in ("ran", "idle", "failing"))
    dead, _ = (life.pod(name) for name in ("dead", "crashed"))
    life.pod("alive")
    life.job()
    life.finish(ran, life.claim(ran))
    sql(
        life.dsn,
        "INSERT INTO cortex.fact (type, subtype, pod_id) VALUES ('error', 'job_failed', $1)",
        failing,
    )
    for pod in (ran, idle, failing):
        assert store(pods.leave, pod, has_run=pod == ran)
    sql(
        life.dsn,
        "UPDATE cortex.pod SET state = 'DEAD', ended_at = now(), has_run = id = $1 "
        "WHERE name IN ('dead', 'crashed')",
        dead,
    )
    assert store(pods.forget, kept_s=POD_KEPT_S, limit=9) == 0
    move_clock(life.dsn, DAY_S + 60)
    assert [store(pods.forget, kept_s=POD_KEPT_S, limit=9) for _ in range(2)] == [2, 0]
    assert names(life) == {"ran", "failing", "dead", "alive"}
    # Retention has deleted all that is as old.
    retired(life, "fact")
    assert store(pods.forget, kept_s=POD_KEPT_S, limit=9) == 0
    retired(life, "job_record")
    assert store(pods.forget, kept_s=POD_KEPT_S, limit=9) == 3
    assert names(life) == {"alive"}


def versions(life: Life) -> set[str]:
    return {row["version"] for row in sql(life.dsn, "SELECT version FROM cortex.code")}


def test_codes_that_no_pod_names_go_with_their_last_pod(store: Session, life: Life) -> None:
    old, older, _ = (life.pod(name, code=name) for name in ("old", "older", "alive"))
    life.pod("also old", code="old")
    assert store(pods.leave, older, has_run=False)
    move_clock(life.dsn, DAY_S + 60)
    life.call(codes.ensure, Code(version="alive"))  # a pod starts with it again
    life.call(codes.ensure, Code(version="starting"))  # its pod registers in a moment
    assert store(pods.forget, kept_s=POD_KEPT_S, limit=9) == 1
    assert versions(life) == {"old", "alive", "starting"}
    assert store(pods.leave, old, has_run=False)
    move_clock(life.dsn, 2 * DAY_S + 120)
    store(pods.forget, kept_s=POD_KEPT_S, limit=9)
    assert versions(life) == {"old", "alive"}  # the other pod of that code has not ended


def test_a_code_is_one_immutable_row(store: Session, life: Life) -> None:
    first, other = (store(codes.ensure, Code(version=text)) for text in ("1", "2"))
    assert store(codes.ensure, Code(version="1")) == first != other
    for change in ("UPDATE cortex.code SET version = '3'", "DELETE FROM cortex.code"):
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            sql(life.dsn, change)


def test_forgetting_pods_reads_facts_by_index(database: str) -> None:
    """With a million of them, twenty pods took longer than a statement may, each time."""
    (made,) = sql(database, "SELECT pg_get_functiondef('cortex.forget_pods'::regproc) AS text")
    assert "enable_seqscan TO 'off'" in made["text"]
    sql(
        database,
        "INSERT INTO cortex.fact (type, subtype, pod_id) "
        "SELECT 'error', 'job_failed', gen_random_uuid() FROM generate_series(1, 3000)",
    )
    sql(database, "ANALYZE cortex.fact")
    plan = sql(
        database,
        "EXPLAIN SELECT FROM cortex.fact f "
        "WHERE f.type IN ('error', 'lifecycle') "
        "AND f.pod_id = '00000000-0000-0000-0000-000000000001'",
    )
    assert "fact_pod" in "\n".join(row[0] for row in plan)
