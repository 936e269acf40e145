"""Looking after budgets costs the same however many jobs wait, runs are over, calls are open."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from tests.sql.test_plans import explain
from tests.support.servers.postgres import sql

BATCH = 100
ROWS_PER_WANTED = 3
FEW = 30
TABLES = {"job_record", "task", "budget_use", "reservation"}

FILL = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex.budget_use SET (autovacuum_enabled = false);
    ALTER TABLE cortex.reservation SET (autovacuum_enabled = false);
    INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
    VALUES ('tenant', 'default', 'usd', 'run', 1, 'ana', ''),
           ('tenant', 'a', 'usd', 'day', 1, 'ana', '');
    INSERT INTO cortex.budget_use (budget_id, window_key, spent, at)
    SELECT 1, lpad(to_hex(n), 32, '0')::uuid::text, 2 + n, now() - interval '8 days'
    FROM generate_series(1, 20000) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, next_retry_at, waiting_on, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'RETRY', 1, now() + interval '1 day',
           'budget:tenant:default:usd:run', '{}'
    FROM generate_series(1, 10000) n;
    INSERT INTO cortex.job_record (id, type, worker_job_id, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', n, '{}' FROM generate_series(10001, 20000) n;
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, attempt, locked_by,
                                    locked_at, heartbeat_at)
    SELECT n, 'work', lpad(to_hex(n), 32, '0')::uuid, 'LOCKED', 3, 1, cortex.uuid7(), now(), now()
    FROM generate_series(10001, 20000) n;
    INSERT INTO cortex.reservation (id, job_id, attempt, pod_id, tenant, step, model, input_tokens,
                                    budget_ids, window_keys, amounts)
    SELECT j.id, j.id, 1, j.pod_id, 'default', 's', 'm', 1, '{}', '{}', '{}'
    FROM cortex.job j WHERE j.status = 'RUNNING';
"""
NEXT_JOB = ("budget:tenant:default:usd:run", UUID(int=4_000))
STATEMENTS: dict[str, tuple[Sequence[object], int]] = {
    "budgets.sweep": ((UUID(int=12_000), BATCH), ROWS_PER_WANTED * BATCH),
    "budgets.wake_next": ((*NEXT_JOB, BATCH), ROWS_PER_WANTED * BATCH),
    "budgets.forget": ((None, None, None, BATCH, 3e6, 6e5), ROWS_PER_WANTED * BATCH),
}


@pytest.fixture
def big(filled: Callable[..., str]) -> str:
    """A database with 10,000 jobs that wait, as many open calls, and 20,000 runs."""
    return filled(FILL)


def worst(dsn: str, name: str, arguments: Sequence[object], tables: set[str]) -> int:
    """The most rows that one look at a large table took; a scan of all of it counts as all."""
    looks = [look for look in explain(dsn, name, arguments) if look.table in tables]
    assert looks
    return max(1_000_000 if look.node == "Seq Scan" else look.rows for look in looks)


def test_budget_passes_read_few_rows(big: str) -> None:
    for _ in ("without statistics", "with fresh ones"):
        for name, (arguments, most) in STATEMENTS.items():
            assert worst(big, name, arguments, TABLES) <= most, name
        assert worst(big, "budgets.list", ("", 100, None), {"budget_use"}) <= FEW
        sql(big, "ANALYZE")


def test_a_scan_would_be_found(big: str) -> None:
    """The guard sees what it is there for: without the index of runs all are looked at."""
    sql(big, "DROP INDEX cortex.budget_use_run")
    assert worst(big, "budgets.list", ("", 100, None), {"budget_use"}) > 10_000
