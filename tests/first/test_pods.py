"""What jobs show while they run, on pods that are killed: once, in order, never backwards."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cortex import SyncClient
from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, steps, submit, until_status
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.shows_app")
SHOWN = {"phase": "held", "inside": [1, 2]}


def state_of(dsn: str, job_id: UUID) -> Any:
    rows = sql(dsn, "SELECT state FROM cortex.job_published WHERE job_id = $1", job_id)
    return json.loads(rows[0]["state"]) if rows else None


@pytest.mark.parametrize(
    "job_type, point",
    [
        ("shows", "before_publish:2"),
        ("shows", "after_publish:2"),
        ("shows-apart", "before_step:4"),
    ],
)
def test_killed_pods_leave_what_a_job_shows(
    pods: Pods, gate: Path, job_type: str, point: str
) -> None:
    job_id = submit(pods.dsn, job_type, {"gate": str(gate)})
    first = pods.start(*APP, crash_at=point)
    eventually(lambda: not first.is_alive, what="the first pod dies")
    pods.start(*APP)
    eventually(lambda: state_of(pods.dsn, job_id) == SHOWN, what="the job shows where it is")
    shown = run_cli("jobs", "state", str(job_id), "--json", dsn=pods.dsn, folder=pods.folder)
    progress = {"done": 1.0, "total": 3.0, "unit": "pages"}
    assert (shown.document["state"], shown.document["progress"]) == (SHOWN, progress)
    listed = run_cli("jobs", "ls", dsn=pods.dsn, folder=pods.folder)
    assert "██░░░░░░ 1/3 pages" in listed.stdout, listed.stderr
    gate.touch()
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert state_of(pods.dsn, job_id) == {**SHOWN, "phase": "over"}
    with SyncClient(pods.dsn) as client:
        handle = client.handle(job_id)
        parts = [{"part": number, "made": row["result"]["made"]} for number in range(3)]
        assert list(handle.stream(timeout=10)) == [*parts, "last"]
        after = handle.state()
    assert after.progress is not None
    assert (after.progress.done, after.state["phase"]) == (3.0, "over")
    assert [key for *_, key in steps(pods.dsn, job_id)] == [
        *("uuid", "now", "emit", "emit#2", "emit#3", "held", "emit#4")
    ]
    assert_one_truth(pods.dsn)
