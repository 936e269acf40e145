"""A paused queue costs nothing, however much waits in it."""

import json
from collections.abc import Callable

import asyncpg
import pytest

from cortex.postgres.database import Profile
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import open_session
from cortex.store import pulse, queues
from tests.sql.test_plans import BATCH, FILL, POD, ROWS_PER_WANTED, Look, explain, rows_read
from tests.sql.test_plans import looks as scans
from tests.support.servers.postgres import run_asyncio, sql

NAMED_READY = """
    SET session_replication_role = replica;
    -- A hundred tasks are the heads of queues of their own, the last ones of all that are ready.
    UPDATE cortex_worker.task t SET queue_name = 'own' || t.id
    WHERE t.id IN (
        SELECT id FROM cortex_worker.task WHERE state = 'READY' ORDER BY id DESC LIMIT 100);
    INSERT INTO cortex_worker.pause (kind, name, paused_by, reason)
    SELECT 'queue', 'q' || n, 'ana', 'test' FROM generate_series(1, 200) n;
"""
PAUSE_DEFAULT = "INSERT INTO cortex_worker.pause VALUES ('queue', '', 'ana', now(), 'x')"
CLAIM = (POD, ["other", "work"], BATCH, 1, 1, ["look_up"], ["alone"])
COUNTED = 500
QUEUES = 50


@pytest.fixture
def paused(filled: Callable[..., str]) -> str:
    """20,000 tasks, most of them in paused queues: the default one and 40 others."""
    return filled(FILL, NAMED_READY, PAUSE_DEFAULT)


def looked_at(looks: list[Look], table: str = "task") -> int:
    assert not [each for each in looks if each.table == table and each.node == "Seq Scan"], looks
    return max((each.rows for each in looks if each.table == table), default=0)


def test_claim_does_not_read_paused_queues(paused: str) -> None:
    for statistics in ("none yet", "fresh"):
        assert rows_read(paused, "tasks.claim", *CLAIM)["task"] <= ROWS_PER_WANTED * BATCH, (
            statistics
        )
        assert looked_at(explain(paused, "tasks.promote", (BATCH,))) <= 2 * BATCH, statistics
        walk = looked_at(explain(paused, "tasks.walk_queues", ("", QUEUES)))
        assert 0 < walk <= 2 * QUEUES, statistics
        sql(paused, "ANALYZE")
    sql(paused, "DELETE FROM cortex_worker.queue_due")
    looks = explain(paused, "tasks.promote", (BATCH,))
    assert looked_at(looks) == 0, "waiting queues cost nothing unless they may move on"


BURST = """
    SET session_replication_role = replica;
    INSERT INTO cortex_worker.task (task, job_id, state, max_attempts, queue_name)
    SELECT 'work', gen_random_uuid(), 'QUEUED', 3, 'q' || n % 2000 FROM generate_series(1, 4000) n;
    INSERT INTO cortex_worker.queue_due (queue, due_at)
    SELECT 'q' || n, timestamptz '-infinity' FROM generate_series(0, 1999) n;
"""


def test_plan_made_while_nothing_waited_serves_many_queues_at_once(database: str) -> None:
    async def run() -> str:
        settings = Profile(dsn=database, hot_path=True).settings
        connection = await asyncpg.connect(database, server_settings=settings)
        other = await asyncpg.connect(database)
        try:
            await connection.execute(f"PREPARE tried AS {query_text('tasks.promote')}")
            await connection.fetch(f"EXECUTE tried({BATCH})")
            await other.execute(BURST)
            query = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE tried({BATCH})"
            return str(await connection.fetchval(query))
        finally:
            connection.terminate()
            other.terminate()

    found = list(scans(json.loads(run_asyncio(run))[0]["Plan"]))
    for table in ("task", "queue_due"):
        assert 0 < max(each.rows for each in found if each.table == table) <= 2 * BATCH, table


def test_scrape_does_not_count_paused_queues(paused: str) -> None:
    for statistics in ("none yet", "fresh"):
        # Running jobs are passed over among the pending ones: their records do not show it.
        looks = explain(paused, "metrics.figures", (COUNTED,))
        assert 0 < looked_at(looks) <= 2 * COUNTED, (statistics, looks)
        sql(paused, "ANALYZE")


def test_a_scan_would_be_found(paused: str) -> None:
    sql(paused, "DROP INDEX cortex_worker.task_ready_named")
    assert rows_read(paused, "tasks.claim", *CLAIM)["task"] > 5 * ROWS_PER_WANTED * BATCH


def test_list_of_queues_reads_a_bounded_number_of_tasks(paused: str) -> None:
    for statistics in ("none yet", "fresh"):
        looks = explain(paused, "queues.list", (None, QUEUES, COUNTED))
        assert looked_at(looks, "job_attempt") <= 2 * QUEUES, statistics
        assert sum(each.rows for each in looks if each.table == "task") <= (QUEUES + 8) * COUNTED
        assert looked_at(looks) > 0, statistics
        sql(paused, "ANALYZE")


ALL_HANDED_BACK = """
    SET session_replication_role = replica;
    DELETE FROM cortex_worker.pause WHERE kind = 'queue' AND name = '';
    UPDATE cortex_worker.task SET attempt = 1 WHERE state = 'READY';
    INSERT INTO cortex.job_attempt (job_id, attempt, pod_id, outcome, due_at, retry_count)
    SELECT job_id, 1, '00000000-0000-0000-0000-000000000007', 'handed_back', now(), 0
    FROM cortex_worker.task WHERE state = 'READY';
"""
WALKED = 5_000


def test_search_for_the_oldest_job_skips_a_bounded_number_of_returns(
    filled: Callable[..., str],
) -> None:
    """8,000 that are ready were all handed back before."""
    dsn = filled(FILL, ALL_HANDED_BACK)
    for statistics in ("none yet", "fresh"):
        for name, arguments in (
            ("queues.list", (["", "q1"], QUEUES, COUNTED)),
            ("metrics.figures", (COUNTED,)),
        ):
            looks = explain(dsn, name, arguments)
            assert COUNTED < looked_at(looks) <= WALKED, (name, statistics, looks)
            assert 0 < looked_at(looks, "job_attempt") <= WALKED, (name, statistics, looks)
        sql(dsn, "ANALYZE")


WAITS = """
    SET session_replication_role = replica;
    UPDATE cortex_worker.task SET run_at = now() - interval '2 days' + id * interval '1 second'
    WHERE state = 'READY';
    UPDATE cortex_worker.task SET attempt = 0 WHERE state = 'READY' AND id > 18000;
"""
WAITS_S = 2 * 86_400 - 18_000
PROBES = 60


def test_job_behind_more_returns_than_the_bound_is_still_found(
    filled: Callable[..., str],
) -> None:
    dsn = filled(FILL, ALL_HANDED_BACK, WAITS)
    for statistics in ("none yet", "fresh"):
        for name, arguments in (
            ("queues.list", ([""], QUEUES, COUNTED)),
            ("metrics.figures", (COUNTED,)),
        ):
            looks = explain(dsn, name, arguments)
            assert WALKED / 2 < looked_at(looks) <= WALKED, (name, statistics, looks)
            few = [each.rows for each in looks if each.table == "task" and each.rows < COUNTED]
            assert sum(few) <= PROBES + COUNTED, (name, statistics, looks)
        sql(dsn, "ANALYZE")
    with open_session(Profile(dsn=dsn)) as call:
        assert call(pulse.figures).oldest_due_s == pytest.approx(WAITS_S, abs=300)
        (default,) = call(queues.page, [None])
        assert default.oldest_ready_s == pytest.approx(WAITS_S, abs=300)


ATTEMPTS = """
    SET session_replication_role = replica;
    INSERT INTO cortex.job_attempt (job_id, attempt, pod_id, outcome, due_at, ended_at, retry_count)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 1, '00000000-0000-0000-0000-000000000007',
           'handed_back', now(), now() - (12000 - n) * interval '1 second', 0
    FROM generate_series(1, 12000) n;
    UPDATE cortex.pod SET drain_requested_at = now() - interval '50 seconds',
        drain_requested_by = 'ana', drain_reason = '';
"""
LEASES, HANDED_BACK = 100, 20
LOCKED = 4_000


def test_pod_list_and_drain_progress_cost_the_same_at_any_history(
    filled: Callable[..., str],
) -> None:
    dsn = filled(FILL, ATTEMPTS)
    for statistics in ("none yet", "fresh"):
        # Every running job, and no other.
        looks = explain(dsn, "pods.list", (5, LEASES))
        assert 0 < looked_at(looks, "task") <= LOCKED, (statistics, looks)
        assert not looked_at(looks, "job_record")
        looks = explain(dsn, "drains.moved", (POD, HANDED_BACK))
        assert looked_at(looks, "job_attempt") == HANDED_BACK, (statistics, looks)
        for table in ("job_record", "task"):
            assert 0 < looked_at(looks, table) <= 2 * HANDED_BACK, (statistics, looks)
        sql(dsn, "ANALYZE")
