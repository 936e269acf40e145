"""The built-in schedules: jobs of their own each minute, run by any pod, out of sight in lists."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cortex.domain.job import UPKEEP
from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, move_clock, submit, until_status
from tests.support.servers.postgres import sql

RESUME = """
    UPDATE cortex.schedule SET paused_at = NULL, paused_by = NULL, pause_reason = NULL,
        next_at = date_trunc('minute', cortex.now()), due_at = date_trunc('minute', cortex.now())
    WHERE origin = 'built_in'
"""
ENDED = """
    SELECT type, status::text, worker_attempts, max_retries, timeout_s, result, submitted_by
    FROM cortex.job WHERE type = ANY ($1) AND finished_at IS NOT NULL ORDER BY type, created_at
"""


@pytest.mark.smoke
def test_the_built_in_schedules_run_the_runners_as_jobs(pods: Pods, tmp_path: Path) -> None:
    dsn = pods.dsn
    cortex = Cortex(tmp_path, dsn)
    real: datetime = sql(dsn, "SELECT statement_timestamp() AS at")[0]["at"]
    target = real.replace(second=5, microsecond=0) + timedelta(minutes=3)
    move_clock(dsn, (target - real).total_seconds())
    sql(dsn, RESUME)
    pods.start()
    rows = eventually(
        lambda: [row for row in [sql(dsn, ENDED, list(UPKEEP))] if len(row) >= 2],
        what="both have run",
    )[0]
    assert [row["type"] for row in rows][:2] == ["expire_approvals", "sweep_zombies"]
    for row in rows:
        assert (row["status"], row["worker_attempts"], row["max_retries"]) == ("COMPLETED", 2, 0)
        assert row["timeout_s"] == 60
        assert row["submitted_by"] == f"schedule:{row['type']}"
        assert row["result"] in (
            '{"items": 0, "is_skipped": false}',
            '{"items": 0, "is_skipped": true}',
        )
    states = {
        row["name"]: row["state"]
        for row in cortex("schedules", "ls", "--json").document["schedules"]
    }
    assert states == dict.fromkeys(UPKEEP, "ok")
    job_id = submit(dsn, "noop")
    until_status(dsn, job_id, "COMPLETED")
    assert [row["type"] for row in cortex("jobs", "ls", "--json").document["jobs"]] == ["noop"]
    shown = cortex("jobs", "ls", "--type", "sweep_zombies", "--json").document["jobs"]
    assert {row["type"] for row in shown} == {"sweep_zombies"}
    assert_one_truth(dsn)
