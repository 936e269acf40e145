"""Recording and listing effects, and resuming their waiting jobs, cost the same at any size."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.canonical import canonical, digest
from tests.sql.test_plans import explain, rows_read
from tests.support.servers.postgres import sql

POD = UUID(int=7)
BATCH = 100
ROWS_PER_WANTED = 8
FEW = 30
MUCH_ROOM = """
    UPDATE cortex.quota SET limit_amount = 1000000, changed_at = now() - interval '1 day'
    WHERE tool = 'pay'
"""
STATES = ["PENDING", "UNKNOWN", "COMPLETED", "FAILED", "ABANDONED"]

FILL = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex.effect SET (autovacuum_enabled = false);
    INSERT INTO cortex.job_record (id, type, worker_job_id, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', n, '{}' FROM generate_series(1, 4000) n;
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, attempt, locked_by,
                                    locked_at, heartbeat_at)
    SELECT n, 'work', lpad(to_hex(n), 32, '0')::uuid, 'LOCKED', 3, 1,
           '00000000-0000-0000-0000-000000000007', now(), now()
    FROM generate_series(1, 4000) n;
    -- The first half of the jobs have done something, all of them by one of two tools.
    INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, arguments, digest,
                               can_reconcile, status, created_at, finished_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, j.id, j.id, 1, 'pay', CASE n % 2 WHEN 0 THEN 'pay' ELSE 'mail' END,
           'default', '{}', sha256('{}'), true, CASE WHEN n % 400 = 0 THEN 'UNKNOWN' ELSE 'COMPLETED' END,
           now() - n * interval '1 second', CASE WHEN n % 400 <> 0 THEN now() END
    FROM generate_series(1, 4000) n
    JOIN cortex.job j ON j.id = lpad(to_hex(1 + n / 2), 32, '0')::uuid
    ON CONFLICT DO NOTHING;
    INSERT INTO cortex.quota (tool, period, limit_amount, changed_by, changed_at, reason)
    VALUES ('pay', 'hour', 1000000, 'ana', now() - interval '1 day', ''),
           ('used_up', 'hour', 0, 'ana', now() - interval '1 day', '');
    INSERT INTO cortex.quota_use (quota_id, began_at, used)
    SELECT q, date_trunc('hour', now()) - n * interval '1 hour', 1
    FROM generate_series(1, 2) q, generate_series(0, 5000) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, next_retry_at, waiting_on, suspended_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'RETRY', 1, now() - interval '1 hour',
           CASE WHEN n % 2 = 0 THEN 'quota:used_up:calls:hour' ELSE 'quota:pay:calls:hour' END, now(), '{}'
    FROM generate_series(200001, 204000) n;
"""  # noqa: E501 -- SQL

# Jobs of the second half, which have done nothing yet, and of the first half, which have.
FRESH = [UUID(int=n) for n in range(2_401, 2_401 + BATCH)]
KNOWN = [UUID(int=n) for n in range(101, 101 + BATCH)]
TEXT = canonical({})


def intents(job_ids: Sequence[UUID]) -> tuple[Any, ...]:
    count = len(job_ids)
    ids = [UUID(int=900_000 + n) for n in range(count)]
    return (
        *(POD, job_ids, [1] * count, ids, ["pay"] * count, ["pay"] * count, [TEXT] * count),
        *([digest(TEXT)] * count, [False] * count, [True] * count, [None] * count),
        [True] * count,
    )


@pytest.fixture
def big(filled: Callable[..., str]) -> str:
    """A database with 4,000 effects, and as many jobs that wait for quotas."""
    return filled(FILL)


def worst(dsn: str, name: str, arguments: Sequence[object]) -> int:
    """The most rows that one look at a large table took; a scan of all of it counts as all."""
    tables = {"job_record", "task", "effect", "quota_use"}
    looks = [look for look in explain(dsn, name, arguments) if look.table in tables]
    assert looks
    return max(1_000_000 if look.node == "Seq Scan" else look.rows for look in looks)


def test_effect_writes_read_only_their_own_rows(big: str) -> None:
    for _ in ("without statistics", "with fresh ones"):
        for job_ids in (FRESH, KNOWN):
            for table, rows in rows_read(big, "effects.intend", *intents(job_ids)).items():
                assert rows <= ROWS_PER_WANTED * BATCH, table
        mine = sql(
            big, "SELECT id, job_id FROM cortex.effect WHERE job_id = ANY ($1::uuid[])", KNOWN
        )[:BATCH]
        output = (
            *(POD, [row["id"] for row in mine], [row["job_id"] for row in mine], [1] * BATCH),
            *([True] * BATCH, ["why"] * BATCH, ["1"] * BATCH),
        )
        assert worst(big, "effects.record_outcomes", output) <= ROWS_PER_WANTED * BATCH
        sql(big, "ANALYZE")


def test_effect_pages_read_only_their_own_rows(big: str) -> None:
    for _ in ("without statistics", "with fresh ones"):
        some = UUID(int=1_600)
        for name, arguments in (
            ("effects.list", (STATES, None, BATCH, None)),
            ("effects.list", (STATES, None, BATCH, "acme")),
            ("effects.list", (STATES, some, BATCH, None)),
            ("effects.list", (STATES, some, BATCH, "nobody")),
            ("effects.list", (["UNKNOWN", "FAILED"], None, BATCH, None)),
            ("effects.list_of_tool", ("pay", STATES, some, BATCH, None)),
            ("effects.list_of_tool", ("pay", ["UNKNOWN"], None, BATCH, None)),
            ("effects.list_of_tool", ("nothing", STATES, None, BATCH, None)),
            ("effects.list_of_job", (KNOWN[0], STATES, None, None, BATCH, None)),
            ("effects.show", (some,)),
        ):
            assert worst(big, name, arguments) <= 2 * ROWS_PER_WANTED * BATCH, (name, arguments)
        sql(big, "ANALYZE")


def test_jobs_waiting_for_a_quota_are_read_only_when_it_has_room(big: str) -> None:
    for _ in ("without statistics", "with fresh ones"):
        sql(big, MUCH_ROOM)
        open_ = "UPDATE cortex.quota SET limit_amount = $1 WHERE tool = 'pay'"
        assert worst(big, "retries.due", (BATCH,)) <= ROWS_PER_WANTED * BATCH, "much room"
        sql(big, open_, 11)
        assert worst(big, "retries.due", (BATCH,)) <= 3 * FEW, "room for ten"
        sql(big, open_, 0)
        assert worst(big, "retries.due", (BATCH,)) <= FEW, "no room"
        sql(big, "UPDATE cortex.quota SET changed_at = now(), limit_amount = 11")
        assert worst(big, "retries.due", (BATCH,)) <= 3 * FEW, "changed just now"
        assert worst(big, "quotas.forget", (86_400.0, BATCH)) <= ROWS_PER_WANTED * BATCH
        sql(big, "ANALYZE")


def test_a_scan_would_be_found(big: str) -> None:
    """The guards see what they are there for: without their indices far more is looked at."""
    sql(big, "ALTER TABLE cortex.effect DROP CONSTRAINT effect_once")
    rows = rows_read(big, "effects.intend", *intents(FRESH[:3]))
    assert rows["effect"] > 1_000
    sql(big, "DROP INDEX cortex.effect_tool")
    assert worst(big, "effects.list_of_tool", ("nothing", STATES, None, BATCH, None)) > 1_000
    sql(big, "DROP INDEX cortex.job_due_by_breaker")
    assert worst(big, "retries.due", (BATCH,)) > 1_000
