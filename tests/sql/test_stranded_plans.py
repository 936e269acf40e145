"""Thousands of jobs that no pod can take cost the others nothing."""

from collections.abc import Callable

import pytest

from cortex.store.background.alarms import FAILED_MAX, JOBS_MAX, STRANDED_S
from tests.sql.test_plans import BATCH, FILL, POD, ROWS_PER_WANTED, explain
from tests.support.servers.postgres import sql

STRAND = """
    SET session_replication_role = replica;
    INSERT INTO cortex_worker.stranded (task, since, jobs)
    VALUES ('gone', now() - interval '9 days', 2000);
    UPDATE cortex.pod SET heartbeat_at = now(), state = 'READY';
    -- Half of what waits in named queues, before the rest, and half of what is ready.
    UPDATE cortex_worker.task SET task = 'gone', priority = -1
    WHERE id <= 10000 AND state IN ('QUEUED', 'READY');
"""
MADE_WAY = """
    SET session_replication_role = replica;
    UPDATE cortex_worker.task SET state = 'STRANDED' WHERE task = 'gone' AND state = 'QUEUED';
"""
IN_ONE_QUEUE = """
    SET session_replication_role = replica;
    UPDATE cortex_worker.task SET queue_name = 'q1' WHERE state = 'QUEUED';
"""
FRONT = 100
"""How many tasks of a queue make way in one statement."""


def read(dsn: str, name: str, arguments: tuple[object, ...]) -> int:
    found = explain(dsn, name, arguments)
    assert not [each for each in found if each.table == "task" and each.node == "Seq Scan"], name
    return sum(each.rows for each in found if each.table == "task")


@pytest.mark.parametrize("have_made_way", [False, True])
def test_stranded_jobs_slow_no_statement(filled: Callable[..., str], have_made_way: bool) -> None:
    dsn = filled(FILL, STRAND, IN_ONE_QUEUE, *([MADE_WAY] if have_made_way else []))
    claim = (POD, ["other", "work"], BATCH, 1, 1, ["look_up"], ["alone"])
    for statistics in ("none yet", "fresh"):
        shown = (statistics, have_made_way)
        assert read(dsn, "tasks.claim", claim) <= 4 * ROWS_PER_WANTED * BATCH, shown
        assert read(dsn, "tasks.promote", (BATCH,)) <= 4 * BATCH + 4 * FRONT, shown
        assert read(dsn, "runners.stranded", (STRANDED_S, JOBS_MAX)) <= 4 * JOBS_MAX, shown
        fail = ("604800", "7d", FAILED_MAX)
        assert read(dsn, "tasks.fail_unfit", (float(fail[0]), *fail[1:])) <= 8 * FAILED_MAX, shown
        sql(dsn, "ANALYZE")
