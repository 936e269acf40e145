"""Every supported Postgres: the schema migrates, jobs run, a killed pod's jobs continue."""

from pathlib import Path

import pytest

from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, submit_many, until_jobs
from tests.support.servers.postgres import migrate, sql
from tests.support.servers.private_postgres import PrivatePostgres

JOBS = 20


@pytest.mark.postgres_versions
def test_jobs_run_and_survive_their_pod(private_postgres: PrivatePostgres, tmp_path: Path) -> None:
    dsn = private_postgres.dsn
    migrate(dsn)
    gate = tmp_path / "gate"
    pods = Pods(dsn, tmp_path)
    try:
        first = pods.start()
        submit_many(dsn, JOBS, "steps", {"count": 5, "gate": str(gate)})
        until_jobs(dsn, "checkpoint->>'seq' = '1'", count=JOBS)
        pods.start()
        first.kill()
        until_jobs(dsn, "status = 'RUNNING' AND attempt = 2", count=JOBS)
        gate.touch()
        until_jobs(dsn, "status = 'COMPLETED'", count=JOBS)
        queued = sql(dsn, "SELECT cortex_worker.add_job('noop', queue_name => 'q') AS task")
        assert queued[0]["task"] > 0
        until_jobs(dsn, "status = 'COMPLETED'", count=JOBS + 1)
        assert_one_truth(dsn)
    finally:
        pods.close()
