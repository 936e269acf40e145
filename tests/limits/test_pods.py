"""Pods of a type with limits, killed in the middle: never exceeded, nothing left behind."""

import json
from pathlib import Path

import pytest

from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, submit, until_jobs
from tests.support.servers.postgres import sql

APP = "tests.support.apps.limited_app"


@pytest.mark.parametrize("point", ["before_admission:2", "after_admission:1", "before_finish:2"])
def test_killed_pod_leaves_no_place_taken(pods: Pods, tmp_path: Path, point: str) -> None:
    journal = tmp_path / "journal"
    pods.environment["JOURNAL"] = str(journal)
    first = pods.start("--app", APP, crash_at=point)
    for number in range(24):
        submit(pods.dsn, "limited", {"customer": f"c{number % 3}", "pause_s": 0.01 * (number % 2)})
    first.exit_code()
    pods.start("--app", APP)
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=24)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len({line["job"] for line in lines}) == 24
    assert sql(pods.dsn, "SELECT FROM cortex_worker.limit_hold") == []
    assert_one_truth(pods.dsn)
