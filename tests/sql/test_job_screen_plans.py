"""However many steps a job has, a look at it reads as many as it shows."""

import asyncpg

from tests.sql.test_plans import IDS, ROWS_PER_WANTED, big, explain
from tests.support.servers.postgres import run_asyncio, sql

__all__ = ["big"]

STEPS = 4_000
PAGE = 200
FILL = f"""
    SET session_replication_role = replica;
    DELETE FROM cortex.job_step WHERE job_id = '{IDS[0]}';
    INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at, finished_at)
    SELECT '{IDS[0]}', n, 1, 'tool', 'step ' || n, '', now(), now()
    FROM generate_series(1, {STEPS}) n;
    INSERT INTO cortex.job_history (job_id, new, attempt, at, metadata)
    SELECT id, 'RUNNING', 1, now(), '{{}}' FROM cortex.job;
    INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, key, tool, tenant, arguments,
                               digest, can_reconcile, status, created_at, finished_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, '{IDS[0]}', '{IDS[0]}', 1, 'step ' || n, 'pay',
           'default', '{{}}', sha256('{{}}'), true, 'COMPLETED', now() - n * interval '1 second',
           now()
    FROM generate_series(1, {STEPS}) n;
    INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
    SELECT 'agent', 'a' || n, 'usd', 'run', 1, 'ana', '' FROM generate_series(1, 5000) n;
"""  # noqa: S608
STATEMENTS: dict[str, list[tuple[object, ...]]] = {
    "job_screen.look": [
        (IDS[0], None, PAGE, 100, 1_000),
        (IDS[0], STEPS - PAGE, PAGE, 100, 1_000),
    ],
    "job_screen.steps_before": [(IDS[0], STEPS // 2, PAGE)],
    "job_screen.detail": [(IDS[0], "step 2000", 100, 100, PAGE)],
}


def test_job_screen_reads_only_the_rows_it_shows(big: str) -> None:
    async def fill() -> None:
        connection = await asyncpg.connect(big)
        await connection.execute(FILL)
        await connection.close()

    run_asyncio(fill)
    offences: list[str] = []
    for statistics in ("none yet", "fresh"):
        for name, calls in STATEMENTS.items():
            for arguments in calls:
                found = explain(big, name, arguments)
                assert found, name
                offences += [
                    f"{name} (statistics: {statistics}): {look}"
                    for look in found
                    if look.table not in ("pod", "stranded")
                    and (look.rows > ROWS_PER_WANTED * PAGE or look.node == "Seq Scan")
                ]
        sql(big, "ANALYZE")
    assert not offences, "\n".join(["", *offences])
