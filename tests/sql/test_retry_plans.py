"""Releasing retries, and explaining a wait, cost the same however many jobs wait."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from cortex.domain.why_facts import AHEAD_MAX
from tests.sql.test_plans import explain
from tests.support.records.rows import move_clock
from tests.support.servers.postgres import sql

BATCH = 100
ROWS_PER_WANTED = 8
COUNTED = 500
FEW = 30
"""Rows of a pass that finds nothing: the ends of the walk over what is waited for."""

FILL = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex_worker.task SET (autovacuum_enabled = false);
    INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe, opened_at,
                                open_until)
    VALUES ('llm:down', 'OPEN', 3, 0, 3, 0, now(), now() + interval '1 hour');
    INSERT INTO cortex.job_record (id, type, status, attempt, next_retry_at, waiting_on, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'RETRY', 1,
           -- All that wait for the breaker are due; of the others none is for an hour, then one
           -- each second: however long a test takes, they are not under it.
           now() + CASE WHEN n % 2 = 0 THEN -1 ELSE 3600 + n END * interval '1 second',
           CASE WHEN n % 2 = 0 THEN 'llm:down' END, '{}'
    FROM generate_series(1, 8000) n;
    INSERT INTO cortex.job_record (id, type, status, worker_job_id, queue_name, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'PENDING', n,
           CASE WHEN n % 2 = 0 THEN 'mail' END, '{}'
    FROM generate_series(8001, 12000) n;
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, queue_name)
    SELECT n, 'work', lpad(to_hex(n), 32, '0')::uuid,
           CASE WHEN n % 2 = 0 THEN 'QUEUED' ELSE 'READY' END::cortex_worker.task_state, 3,
           CASE WHEN n % 2 = 0 THEN 'mail' END
    FROM generate_series(8001, 12000) n;
"""
WAITS_FOR_BREAKER, WAITS_FOR_TIME, WAITS_IN_QUEUE, WAITS_FOR_POD = (
    *(UUID(int=4_000), UUID(int=3_999)),
    *(UUID(int=12_000), UUID(int=11_999)),
)


@pytest.fixture
def big(filled: Callable[..., str]) -> str:
    """A database with 8,000 jobs in RETRY, half of them behind an open breaker."""
    return filled(FILL)


def worst(dsn: str, name: str, arguments: Sequence[object]) -> int:
    """The most rows that one look at a large table took; a scan of all of it counts as all."""
    looks = [look for look in explain(dsn, name, arguments) if look.table in {"job_record", "task"}]
    assert looks
    return max(1_000_000 if look.node == "Seq Scan" else look.rows for look in looks)


def test_retry_pass_reads_few_rows(big: str) -> None:
    for _ in ("without statistics", "with fresh ones"):
        behind = "UPDATE cortex.breaker SET state = $1, open_until = $2, opened_at = $2"
        assert worst(big, "retries.due", (BATCH,)) <= FEW, "behind an open breaker"
        sql(big, behind, "OPEN", sql(big, "SELECT now() - interval '1 hour' AS at")[0]["at"])
        assert worst(big, "retries.due", (BATCH,)) <= FEW, "one may probe"
        sql(big, behind, "CLOSED", None)
        assert worst(big, "retries.due", (BATCH,)) <= ROWS_PER_WANTED * BATCH, "it has closed"
        move_clock(big, 60_000)
        assert worst(big, "retries.due", (BATCH,)) <= ROWS_PER_WANTED * BATCH, "all are due"
        move_clock(big, -60_000)
        sql(big, behind, "OPEN", sql(big, "SELECT now() + interval '1 hour' AS at")[0]["at"])
        sql(big, "ANALYZE")


def test_budgets_are_not_walked(big: str) -> None:
    """Each of many jobs waits for a budget of its own: a pass sees none before its time."""
    sql(
        big,
        "UPDATE cortex.job_record SET waiting_on = 'budget:job:' || id || ':usd:day', "
        "next_retry_at = now() + interval '1 day' WHERE status = 'RETRY' AND waiting_on IS NULL",
    )
    sql(big, "VACUUM ANALYZE cortex.job_record")
    assert worst(big, "retries.due", (BATCH,)) <= FEW


def test_released_jobs_add_no_cost_to_a_retry_pass(big: str) -> None:
    """Many were let go when it closed, and it has opened again: the newest of them is enough."""
    let_go = (
        "UPDATE cortex.job_record SET worker_job_id = 1 WHERE waiting_on = 'llm:down' AND id <> $1"
    )
    sql(big, let_go, WAITS_FOR_BREAKER)
    sql(big, "UPDATE cortex.breaker SET open_until = now() - interval '1 hour'")
    sql(big, "VACUUM ANALYZE cortex.job_record")
    assert worst(big, "retries.due", (BATCH,)) <= FEW


def test_one_job_costs_little_and_a_list_of_breakers_counts_no_further(big: str) -> None:
    for statistics in ("none yet", "fresh"):
        assert worst(big, "breakers.list", (None, 200, COUNTED)) <= COUNTED, statistics
        for job_id in (WAITS_FOR_BREAKER, WAITS_FOR_TIME, WAITS_IN_QUEUE, WAITS_FOR_POD):
            shown = f"{job_id}, statistics: {statistics}"
            assert worst(big, "retries.now", ([job_id], "ana", "why", None)) <= FEW, shown
            rows = worst(big, "why.facts", ([job_id], AHEAD_MAX + 1))
            assert rows <= AHEAD_MAX + FEW, shown
        every = [WAITS_FOR_BREAKER, WAITS_FOR_TIME, WAITS_IN_QUEUE, WAITS_FOR_POD] * 12
        every += [UUID(int=each) for each in range(3_800, 3_850)]
        rows = worst(big, "why.facts", (every, 0))
        assert rows <= 2 * len(every) + FEW, f"a list, statistics: {statistics}"
        sql(big, "ANALYZE")


def test_a_scan_would_be_found(big: str) -> None:
    """The guard sees what it is there for: without the index of what is waited for all are read."""
    sql(big, "DROP INDEX cortex.job_due_by_breaker")
    assert worst(big, "retries.due", (BATCH,)) > 2_000
