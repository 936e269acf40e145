"""A cluster without pods: `cortex tick` again and again does all that pods do."""

import json
import signal
from pathlib import Path

import pytest

from cortex import crash_points
from cortex.actors.runner import ITEMS
from tests.support.eventually import eventually
from tests.support.holder import holding
from tests.support.pods import TICK_WITHIN_S, Pods, Ticked, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    history,
    hold_turns,
    job_count,
    job_row,
    move_clock,
    steps,
    submit,
    submit_many,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql
from tests.support.servers.proxy import proxy

ASKS = "tests.support.apps.approval_app"
ALL_OK = {
    "sweep_zombies": "ok",
    "expire_approvals": "ok",
    "notifications": "ok",
    "schedules": "ok",
    "retries": "ok",
    "wakes": "ok",
    "children": "ok",
    "limits": "ok",
    "line": "ok",
    "dispatch": "ok",
    "dead_letters": "ok",
    "reconcile": "ok",
    "batches": "ok",
    "outbox": "ok",
    "alarms": "ok",
    "housekeeping": "ok",
    "retention": "ok",
}


def status(dsn: str, job_id: object) -> str:
    return str(job_row(dsn, job_id)["status"])  # type: ignore[arg-type]


@pytest.mark.smoke
def test_a_job_is_run_retried_and_completed_by_ticks_alone(pods: Pods) -> None:
    job_id = submit(pods.dsn, "flaky", {"how": "app"})
    first = pods.tick()
    assert (first.exit_code, first.outcomes) == (0, ALL_OK)
    assert first.runners["dispatch"]["items"] == 1
    (printed,) = [json.loads(line) for line in first.log.splitlines() if "flaky attempt" in line]
    assert (printed["text"], printed["job"]) == ("flaky attempt 1", str(job_id))
    assert status(pods.dsn, job_id) == "RETRY"
    move_clock(pods.dsn, 61)
    second = pods.tick()
    assert [second.runners[name]["items"] for name in ("retries", "dispatch")] == [1, 1]
    assert job_row(pods.dsn, job_id)["result"] == 2
    assert attempts(pods.dsn, job_id) == [(1, "retry")]
    assert_one_truth(pods.dsn)
    (row,) = sql(pods.dsn, "SELECT * FROM cortex.runner WHERE name = 'dispatch'")
    assert (row["run_count"], row["item_count"], row["error"]) == (2, 2, None)
    assert row["holder"].startswith("tick ")
    assert {row["has_run"] for row in sql(pods.dsn, "SELECT has_run FROM cortex.pod")} == {True}
    listed = run_cli("pods", "ls", dsn=pods.dsn, folder=pods.folder)
    assert "cortex tick runs the jobs, last" in listed.stdout + listed.stderr


def test_tick_without_work_starts_no_pod(pods: Pods) -> None:
    done = pods.tick()
    assert (done.exit_code, done.outcomes) == (0, ALL_OK)
    assert not sql(pods.dsn, "SELECT FROM cortex.pod")
    assert {row["name"] for row in sql(pods.dsn, "SELECT name FROM cortex.runner")} == set(ALL_OK)
    submit(pods.dsn, "sweep_zombies", {})
    pods.tick()
    (pod,) = sql(pods.dsn, "SELECT has_run FROM cortex.pod")
    assert not pod["has_run"], "its record is not kept for the sake of upkeep"


def test_an_approval_is_decided_or_expires_between_ticks(pods: Pods) -> None:
    decided = submit(pods.dsn, "ship", {"count": 1})
    ignored = submit(pods.dsn, "ship", {"count": 2, "expires_s": 60})
    pods.tick(app=ASKS)
    assert [status(pods.dsn, each) for each in (decided, ignored)] == ["WAITING_FOR_APPROVAL"] * 2
    (asked,) = sql(pods.dsn, "SELECT id FROM cortex.approval WHERE job_id = $1", decided)
    words = ("approvals", "approve", str(asked["id"]), "--yes")
    ran = run_cli(*words, dsn=pods.dsn, folder=pods.folder)
    assert ran.exit_code == 0, ran.stderr
    move_clock(pods.dsn, 61)
    done = pods.tick(app=ASKS)
    assert done.runners["expire_approvals"]["items"] == 1
    assert job_row(pods.dsn, decided)["result"] == {"count": 1}
    assert job_row(pods.dsn, ignored)["result"] == "approval_expired"
    assert_one_truth(pods.dsn)


def test_two_ticks_and_two_pods_at_once_repeat_no_work(pods: Pods) -> None:
    count = 400
    submit_many(pods.dsn, count, "steps", {"count": 3})
    submit_many(pods.dsn, count, "noop", {})
    ticks = [pods.launch_tick(tick_items=10_000) for _ in range(2)]
    for _ in range(2):
        pods.start()
    ended = [Ticked.of(each) for each in ticks]
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=2 * count)
    assert [each.exit_code for each in ended] == [0, 0]
    assert_one_truth(pods.dsn)
    runs = "SELECT count(*) AS n FROM cortex.job_history WHERE new = 'RUNNING'"
    assert sql(pods.dsn, runs)[0]["n"] == 2 * count, "each attempt began once"
    once = "SELECT count(*) AS n FROM cortex.job_step"
    assert sql(pods.dsn, once)[0]["n"] == 3 * count
    assert not sql(pods.dsn, "SELECT FROM cortex_worker.task")


def test_a_killed_tick_is_taken_over_by_the_next_one(pods: Pods, gate: Path) -> None:
    job_id = submit(pods.dsn, "steps", {"count": 3, "gate": str(gate)})
    tick = pods.launch_tick()
    eventually(lambda: len(steps(pods.dsn, job_id)) == 1, what="it is in the middle of the job")
    tick.kill()
    gate.touch()
    done = pods.tick()
    assert done.exit_code == 0
    row = job_row(pods.dsn, job_id)
    assert (row["status"], row["attempt"], row["result"]) == ("COMPLETED", 2, 3)
    assert attempts(pods.dsn, job_id) == [(1, "pod_died")]
    assert [attempt for _, attempt, _, _ in steps(pods.dsn, job_id)] == [1, 2, 2]
    assert_one_truth(pods.dsn)


@pytest.mark.parametrize(
    "point",
    [
        *("before_due", "after_due", "before_claim", "after_claim"),
        *("before_finish", "after_finish", "before_sign_off", "after_sign_off"),
    ],
)
def test_tick_after_a_kill_at_any_write_continues_the_job(pods: Pods, point: str) -> None:
    job_id = submit(pods.dsn, "flaky", {"how": "app"})
    pods.tick()
    move_clock(pods.dsn, 61)
    pods.environment |= {crash_points.VARIABLE: f"{point}:1"}
    killed = pods.launch_tick()
    assert killed.exit_code(within_s=TICK_WITHIN_S) == -signal.SIGKILL
    del pods.environment[crash_points.VARIABLE]
    ended = [pods.tick() for _ in range(2)]  # a pod that has just started is not judged yet
    assert [each.exit_code for each in ended] == [0, 0]
    row = job_row(pods.dsn, job_id)
    assert (row["status"], row["retry_count"]) == ("COMPLETED", 1)
    assert [key for _, _, _, key in steps(pods.dsn, job_id)] == ["begun"]
    assert_one_truth(pods.dsn)


def test_job_not_ended_within_a_tick_is_handed_back(pods: Pods, gate: Path) -> None:
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    done = pods.tick("--runner-max", "4s")
    assert (done.exit_code, done.runners["dispatch"]["items"]) == (0, 1)
    assert 1 < done.runners["dispatch"]["duration_s"] < TICK_WITHIN_S / 2
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    assert job_row(pods.dsn, job_id)["task_state"] == "READY"
    gate.touch()
    pods.tick()
    assert job_row(pods.dsn, job_id)["result"] == 2


def test_a_tick_claims_no_more_than_its_items(pods: Pods) -> None:
    submit_many(pods.dsn, 30, "noop", {})
    done = pods.tick("--items", "20", "--runners", "dispatch")
    assert done.outcomes == {"dispatch": "ok"}
    assert done.runners["dispatch"]["items"] == 20
    assert job_count(pods.dsn, "status = 'COMPLETED'") == 20
    assert ITEMS == 200, "as the documentation says"


def test_a_signal_ends_it_in_order_and_a_second_one_at_once(pods: Pods, gate: Path) -> None:
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    tick = pods.launch_tick()
    until_status(pods.dsn, job_id, "RUNNING")
    eventually(lambda: len(steps(pods.dsn, job_id)) == 1, what="its first step is committed")
    tick.signal(signal.SIGTERM)
    is_draining = "SELECT count(draining_at) AS count FROM cortex.pod"
    eventually(lambda: sql(pods.dsn, is_draining)[0]["count"] == 1, what="it drains")
    tick.signal(signal.SIGTERM)
    done = Ticked.of(tick)
    assert done.exit_code == 128 + signal.SIGTERM
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    assert done.outcomes["housekeeping"] == "not run"
    gate.touch()
    assert pods.tick().exit_code == 0
    assert job_row(pods.dsn, job_id)["status"] == "COMPLETED"


def test_a_runner_that_fails_keeps_no_other_from_running(pods: Pods) -> None:
    sql(pods.dsn, "ALTER TABLE cortex.said RENAME COLUMN at TO said_at")
    job_id = submit(pods.dsn, "noop")
    with holding(pods.dsn, hold_turns("triage"), idle_in_transaction_session_timeout="0"):
        done = pods.tick()
    assert done.exit_code == 1
    assert done.outcomes == ALL_OK | {"housekeeping": "failed", "dead_letters": "skipped"}
    assert "does not exist" in done.runners["housekeeping"]["error"]
    assert history(pods.dsn, job_id)[-1][1] == "COMPLETED"
    kept = "SELECT error_count, skip_count FROM cortex.runner WHERE name = $1"
    counts = [
        tuple(sql(pods.dsn, kept, each)[0].values()) for each in ("housekeeping", "dead_letters")
    ]
    assert counts == [(1, 0), (0, 1)]


def test_tick_without_its_database_exits_with_8_and_loses_nothing(pods: Pods, gate: Path) -> None:
    job_id = submit(pods.dsn, "steps", {"count": 3, "gate": str(gate)})
    with proxy(pods.dsn) as line:
        beyond = Pods(line.dsn, pods.folder / "beyond")
        beyond.folder.mkdir()
        tick = beyond.launch_tick("--runner-max", "6s")
        eventually(lambda: len(steps(pods.dsn, job_id)) == 1, what="it is in the middle of the job")
        line.refuse()
        gate.touch()
        done = Ticked.of(tick)
        assert done.exit_code == 8
        never = Ticked.of(beyond.launch_tick())
        assert (never.exit_code, never.runners) == (8, {})
        assert "unavailable" in never.log
        beyond.close()
    eventually(lambda: pods.tick().exit_code == 0, what="it is back")
    until_status(pods.dsn, job_id, "COMPLETED")
    assert len(steps(pods.dsn, job_id)) == 3
    assert_one_truth(pods.dsn)
