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


def send(dsn: str, job_id: UUID, payload: int) -> None:
    sql(
        dsn,
        "SELECT cortex.send_signal('go', $2::jsonb, key => $1)",
        str(job_id),
        json.dumps(payload),
    )


def requests(dsn: str, job_id: UUID) -> list[str]:
    query = "SELECT status FROM cortex.approval WHERE job_id = $1 ORDER BY seq"
    return [row["status"] for row in sql(dsn, query, job_id)]


@pytest.mark.parametrize(
    "job_type, point",
    [
        ("buys", "after_suspend:1"),
        ("buys", "before_step:3"),
        ("buys-apart", "after_step:3"),
    ],
)
def test_killed_pods_agree_on_the_first_of_several(pods: Pods, job_type: str, point: str) -> None:
    job_id = submit(pods.dsn, job_type)
    first = pods.start(*APP, crash_at=point)
    eventually(lambda: requests(pods.dsn, job_id) == ["PENDING"], what="people are asked")
    send(pods.dsn, job_id, 1)
    send(pods.dsn, job_id, 2)
    eventually(lambda: not first.is_alive, what="the first pod dies")
    pods.start(*APP)
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"] == ["go", 1, 2]
    assert requests(pods.dsn, job_id) == ["CANCELLED"]
    listed = run_cli("approvals", "ls", "--json", dsn=pods.dsn, folder=pods.folder)
    assert listed.document["approvals"] == []
    assert_one_truth(pods.dsn)


def test_timer_and_decision_both_end_a_wait(pods: Pods) -> None:
    late, asked = submit(pods.dsn, "buys", {"timer_s": 0.5}), submit(pods.dsn, "buys")
    pods.start(*APP)
    row = until_status(pods.dsn, late, "COMPLETED")
    assert (row["result"], requests(pods.dsn, late)) == (["too late", None, None], ["CANCELLED"])
    eventually(lambda: requests(pods.dsn, asked) == ["PENDING"], what="people are asked")
    (request,) = sql(pods.dsn, "SELECT id FROM cortex.approval WHERE status = 'PENDING'")
    decided = run_cli(
        *("approvals", "approve", str(request["id"]), "--as", "ann", "--yes"),
        dsn=pods.dsn,
        folder=pods.folder,
    )
    assert decided.exit_code == 0, decided.stderr
    assert until_status(pods.dsn, asked, "COMPLETED")["result"] == ["buy", None, None]
    assert_one_truth(pods.dsn)


@pytest.mark.parametrize("point", ["before_step:6", "after_step:6"])
def test_losing_children_are_cancelled_unless_detached(pods: Pods, point: str) -> None:
    job_id = submit(pods.dsn, "races")
    first = pods.start(*APP, crash_at=point)
    eventually(lambda: not first.is_alive, what="the first pod dies")
    pods.start(*APP)
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"] == ["late", "quick", 0.0]
    query = (
        "SELECT c.step, j.status, j.cancel_reason FROM cortex.job_child c "
        "JOIN cortex.job j ON j.id = c.job_id"
    )

    def children() -> dict[str, str]:
        return {each["step"]: each["status"] for each in sql(pods.dsn, query)}

    expected = {"rests": "CANCELLED", "apart": "RETRY", "quick": "COMPLETED"}
    eventually(lambda: children() == expected, what="the loser is cancelled")
    (reason,) = [each["cancel_reason"] for each in sql(pods.dsn, query) if each["step"] == "rests"]
    assert reason.endswith("goes on without it")
    assert sql(pods.dsn, "SELECT FROM cortex.child_cut") == []
    assert_one_truth(pods.dsn)


def test_arrivals_wake_jobs_beside_their_steps(pods: Pods) -> None:
    jobs = [submit(pods.dsn, each) for each in ("works", "works-apart", "leads")]
    pods.start("--app", "tests.support.apps.beside_app")

    def all_work() -> bool:
        return all(state_of(pods.dsn, each) == {"phase": "works"} for each in jobs)

    eventually(all_work, what="all steps run")
    for each in jobs[:2]:
        sql(pods.dsn, "SELECT cortex.send_signal('go', '1', job => $1)", each)
    sql(pods.dsn, "SELECT cortex.send_signal('end', '2', key => 'follower')")
    results = [until_status(pods.dsn, each, "COMPLETED")["result"] for each in jobs]
    assert results == [["go", 1], ["go", 1], ["follows result", 2]]
    assert_one_truth(pods.dsn)


def test_why_names_all_that_wakes_a_job(pods: Pods) -> None:
    buys, races = submit(pods.dsn, "buys"), submit(pods.dsn, "races")
    pods.start(*APP)
    eventually(lambda: requests(pods.dsn, buys) == ["PENDING"], what="people are asked")
    shown = run_cli("why", str(buys), "--json", dsn=pods.dsn, folder=pods.folder).document
    assert shown["cause"] == "approval"
    assert shown["sentence"].startswith("it waits for the first of: a person to approve buy (MED)")
    assert f"; signal go to key {buys}; the end of its time at " in shown["sentence"]
    assert f"cortex jobs signal go --key {buys} --data JSON" in shown["ways_out"]
    listed = run_cli("jobs", "ls", "status:asks", "--json", dsn=pods.dsn, folder=pods.folder)
    assert [each["id"] for each in listed.document["jobs"]] == [str(buys)]
    until_status(pods.dsn, races, "COMPLETED")


def test_preflight_replays_jobs_that_wait_for_the_first_of_several(pods: Pods) -> None:
    hoping, further = submit(pods.dsn, "hopes"), submit(pods.dsn, "hopes")
    asking = submit(pods.dsn, "buys")
    sql(pods.dsn, "SELECT cortex.send_signal('two', 'null', job => $1)", further)
    pods.start(*APP)
    waiting = (
        "SELECT count(*) AS n FROM cortex.job_record WHERE worker_job_id IS NULL "
        "AND status = 'RETRY' AND id = ANY ($1::uuid[])"
    )
    jobs = [hoping, further, asking]
    eventually(lambda: sql(pods.dsn, waiting, jobs)[0]["n"] == len(jobs), what="all wait")
    checked = run_cli("preflight", APP[1], "--json", dsn=pods.dsn, folder=pods.folder)
    assert checked.exit_code == 0, checked.stdout + checked.stderr
    assert (checked.document["jobs"], checked.document["fit"]) == (3, 3)
