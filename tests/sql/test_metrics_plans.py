"""However many jobs have ended, a scrape looks at none of them."""

from collections.abc import Callable

from tests.sql.test_plans import FILL, explain
from tests.support.servers.postgres import sql

END_MOST = """
    SET session_replication_role = replica;
    DELETE FROM cortex_worker.task WHERE id > 500;
    UPDATE cortex.job_record SET status = 'COMPLETED', finished_at = now()
    WHERE status IN ('PENDING', 'RUNNING') AND id > lpad(to_hex(500), 32, '0')::uuid;
    INSERT INTO cortex.dead_letter (
        job_id, lineage_id, fingerprint, type, tenant, created_at, state, resolved_at, resolved_by)
    SELECT gen_random_uuid(), gen_random_uuid(), 'x', 'work', 'default', now(),
           CASE WHEN n > 100 THEN 'DISCARDED' ELSE 'OPEN' END,
           CASE WHEN n > 100 THEN now() END, CASE WHEN n > 100 THEN 'ana' END
    FROM generate_series(1, 4000) n;
"""
LOOKED_AT_MAX = {"job_record": 700, "task": 900, "dead_letter": 100}
"""What END_MOST leaves unfinished, beside 25,500 jobs and 3,900 letters that are done with."""


def test_scrape_reads_no_finished_job(filled: Callable[..., str]) -> None:
    database = filled(FILL, END_MOST)
    # Dead versions stay in indexes until they are cleaned up: that is not under test.
    sql(database, "VACUUM cortex.job_record, cortex_worker.task, cortex.dead_letter")
    for statistics in ("none yet", "fresh"):
        looks = explain(database, "metrics.figures", (100_000,))
        scanned = {each.table for each in looks if each.node == "Seq Scan"}
        # What people and code declare, and the kinds of stranded work: few.
        assert scanned <= {"pause", "runner", "schedule", "stranded"}, statistics
        for table, most in LOOKED_AT_MAX.items():
            seen = sum(each.rows for each in looks if each.table == table)
            assert 0 < seen <= most + 10, (statistics, table, looks)
        sql(database, "ANALYZE")


def test_a_backlog_is_counted_up_to_the_limit(filled: Callable[..., str]) -> None:
    looks = explain(filled(FILL), "metrics.figures", (1000,))
    for table, counts in {"job_record": 4, "task": 4}.items():
        assert sum(each.rows for each in looks if each.table == table) <= counts * 1000 + 10, looks
