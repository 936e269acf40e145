"""However many jobs have ended, or are of others, a submit counts those of its tenant."""

import asyncpg

from tests.support.servers.postgres import run_asyncio, sql

ENDED, UNFINISHED = 20_000, 50
FILL = f"""
    SET session_replication_role = replica;
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    INSERT INTO cortex.job_record (id, type, status, tenant, finished_at, payload)
    SELECT gen_random_uuid(), 'work',
           CASE WHEN n > {ENDED} THEN 'PENDING' ELSE 'COMPLETED' END::cortex.job_status, 'acme',
           CASE WHEN n <= {ENDED} THEN now() END, '{{}}'
    FROM generate_series(1, {ENDED + UNFINISHED}) n;
    INSERT INTO cortex.job_record (id, type, status, tenant, payload)
    SELECT gen_random_uuid(), 'work', 'PENDING', 'bolt', '{{}}' FROM generate_series(1, 2000) n;
    INSERT INTO cortex.tenant_cap VALUES ('acme', 1000, 1000000, 'ana', now(), 'test')
"""  # noqa: S608
READ = """
    SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::int
    FROM pg_stat_xact_all_tables WHERE relname = 'job_record'
"""


def rows_read(dsn: str) -> int:
    """How many rows of jobs a submit of the tenant reads."""

    async def run() -> int:
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute("SELECT cortex.submit_job('work', tenant => 'acme')")
                return int(await connection.fetchval(READ))
        finally:
            connection.terminate()

    return run_asyncio(run)


def test_a_submit_counts_the_unfinished_jobs_of_its_tenant_alone(database: str) -> None:
    run_asyncio(lambda: _filled(database))
    for statistics in ("none yet", "fresh"):
        assert rows_read(database) <= 3 * UNFINISHED, statistics
        sql(database, "ANALYZE cortex.job_record")
    sql(database, "DROP INDEX cortex.job_unfinished")
    assert rows_read(database) > 3 * UNFINISHED


async def _filled(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(FILL)
    finally:
        connection.terminate()
