"""Rows read by claims and submissions grow neither with the backlog nor with the batch."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from cortex.postgres.database import Profile
from cortex.postgres.queries import sql as query_text
from tests.sql.test_plans import literal
from tests.support.hot_path import quiet_server
from tests.support.servers.postgres import run_asyncio, sql

POD = UUID(int=7)
BATCH = 100
CLAIMS = 20
SUBMITTED = 1000

BACKLOG = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex_worker.task SET (autovacuum_enabled = false);
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts)
    SELECT n, 'work', lpad(to_hex(n), 32, '0')::uuid, 'READY', 3 FROM generate_series(1, {count}) n;
    INSERT INTO cortex.job_record (id, type, worker_job_id, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', n, '{{}}' FROM generate_series(1, {count}) n;
"""
SUBMIT = """
    SELECT cardinality(cortex.submit_jobs(
        ARRAY(SELECT cortex.uuid7() FROM generate_series(1, 1000)),
        array_fill('work'::text, '{1000}'), array_fill('{}'::jsonb, '{1000}'),
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL))
"""
CLAIM: Sequence[object] = (POD, ["work"], BATCH, 1, 1, [], [])
ENTRIES = """
    SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'task_ready'
"""
LOOKUPS = """
    SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables
    WHERE relid = 'cortex.job_type'::regclass
"""


async def connect(dsn: str) -> Any:
    return await asyncpg.connect(dsn, server_settings=Profile(dsn=dsn, hot_path=True).settings)


async def fill(dsn: str, *, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(BACKLOG.format(count=count))
    await connection.close()


async def counted(connection: Any, query: str) -> int:
    """Return a figure of the server's statistics, up to the statement before."""
    await connection.fetchval("SELECT pg_stat_force_next_flush()")
    value: int = await connection.fetchval(query)
    return value


def blocks_of_claim(dsn: str) -> int:
    """Return how many blocks a claim looks at, found in the cache or not."""

    async def run() -> Any:
        connection = await connect(dsn)
        try:
            await connection.execute(f"PREPARE tried AS {query_text('tasks.claim')}")
            given = ", ".join(map(literal, CLAIM))
            await connection.execute(f"EXECUTE tried({given})")  # it reads the catalogue
            found = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE tried({given})"
            )
            return json.loads(found)[0]["Plan"]
        finally:
            connection.terminate()

    plan = run_asyncio(run)
    assert plan["Actual Rows"] == BATCH
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def least_of_late_claims(dsn: str, *, is_held: bool) -> int:
    """Return how many entries of the ready index a claim reads after many others, at least."""

    async def run() -> int:
        connection, other = await connect(dsn), await connect(dsn)
        claim = await connection.prepare(query_text("tasks.claim"))
        try:
            if is_held:
                await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                await other.fetch("SELECT FROM cortex_worker.queue_pause")
            read = []
            for _ in range(CLAIMS):
                before = await counted(connection, ENTRIES)
                assert len(await claim.fetch(*CLAIM)) == BATCH
                read.append(await counted(connection, ENTRIES) - before)
            return min(read[CLAIMS // 2 :])
        finally:
            connection.terminate()
            other.terminate()

    return run_asyncio(run)


def test_deep_backlog_makes_no_claim_more_expensive(filled: Callable[..., str]) -> None:
    shallow = blocks_of_claim(filled(BACKLOG.format(count=1000)))
    deep = blocks_of_claim(filled(BACKLOG.format(count=12_000)))
    assert deep <= 1.2 * shallow


def test_claims_read_entries_of_claimed_tasks_only_once(run_dir: Path) -> None:
    """Vacuum has not come: the scan itself marks the entries of claimed tasks as dead.

    On a server without other sessions: a snapshot of theirs may still need such entries.
    """
    with quiet_server(run_dir) as server:
        run_asyncio(lambda: fill(server.dsn, count=2 * CLAIMS * BATCH))
        assert least_of_late_claims(server.dsn, is_held=False) <= 2 * BATCH
        # What would be seen without the marks.
        assert least_of_late_claims(server.dsn, is_held=True) > 5 * BATCH


def test_batch_reads_the_defaults_of_its_type_once(database: str) -> None:
    sql(database, "INSERT INTO cortex.job_type VALUES ('work', 5, 7, 90, 135)")

    async def run() -> int:
        connection = await connect(database)
        try:
            before = await counted(connection, LOOKUPS)
            assert await connection.fetchval(SUBMIT) == SUBMITTED
            return await counted(connection, LOOKUPS) - before
        finally:
            connection.terminate()

    assert run_asyncio(run) == 1
