"""Jobs in RETRY that are locked: those after them continue."""

from contextlib import ExitStack
from uuid import UUID

import pytest

from cortex.postgres.session import Session
from cortex.store import retries
from tests.support.eventually import eventually
from tests.support.holder import holding_task
from tests.support.records.rows import new_id, submit
from tests.support.servers.postgres import sql

TRIED = "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1"
UNTASKED = "DELETE FROM cortex_worker.task WHERE job_id = $1"
WAITS = """
    UPDATE cortex.job_record SET status = 'RETRY', worker_job_id = NULL, waiting_on = $2,
        next_retry_at = cortex.now() - $3::float8 * interval '1 second'
    WHERE id = $1
"""


def due(dsn: str, since_s: float, *, waiting_on: str | None = None) -> UUID:
    """A job in RETRY that has been due for so long."""
    job_id = submit(dsn, "work", id=new_id())
    for query in (TRIED, UNTASKED):
        sql(dsn, query, job_id)
    sql(dsn, WAITS, job_id, waiting_on, since_s)
    return job_id


def with_tasks(dsn: str) -> set[UUID]:
    return {row["job_id"] for row in sql(dsn, "SELECT job_id FROM cortex_worker.task")}


@pytest.mark.parametrize("waiting_on", [None, "llm:m"], ids=["time", "a closed breaker"])
def test_locked_job_does_not_hold_up_later_retries(
    store: Session, database: str, waiting_on: str | None
) -> None:
    held = [due(database, 100 - n, waiting_on=waiting_on) for n in range(2)]
    free = [due(database, 50 - n) for n in range(2)]
    with ExitStack() as holders:
        for job_id in held:
            holders.enter_context(holding_task(database, job_id, table="cortex.job_record"))
        assert store(retries.due, limit=2).count == 2
        assert with_tasks(database) == set(free)
        assert store(retries.due, limit=2).count == 0

    def all_go_on() -> bool:
        store(retries.due, limit=2)
        return with_tasks(database) == {*held, *free}

    eventually(all_go_on, what="they are free again")
