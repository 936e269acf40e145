"""The two layers that retry, on a real pod, and what people see of them."""

import json

import pytest

from tests.support.pods import Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    history,
    move_clock,
    submit,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql


def test_infrastructure_is_tried_again_by_the_worker_layer(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "flaky", {"how": "infra"})
    row = until_job(pods.dsn, job_id, lambda r: r["task_state"] == "LATER", "to be tried again")
    assert (row["status"], row["retry_count"], row["attempts_spent"]) == ("RUNNING", 0, 1)
    assert 2.7 < (row["task_run_at"] - row["updated_at"]).total_seconds() < 2.8
    move_clock(pods.dsn, 5)
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert (row["result"], row["attempt"], row["retry_count"]) == (2, 2, 0)
    assert attempts(pods.dsn, job_id) == [(1, "failed")]
    assert [new for _, new, _ in history(pods.dsn, job_id)] == ["PENDING", "RUNNING", "COMPLETED"]


def test_spent_worker_attempts_fail_the_job_and_leave_a_letter(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "flaky", {"how": "infra", "times": 9})
    until_job(pods.dsn, job_id, lambda r: r["task_state"] == "LATER", "to be tried again")
    move_clock(pods.dsn, 5)
    row = until_status(pods.dsn, job_id, "FAILED")
    assert (row["attempt"], row["error_class"]) == (2, "TRANSIENT_INFRA")
    assert row["error_message"] == "ConnectionResetError: the line was cut"
    letter = sql(pods.dsn, "SELECT state FROM cortex.dead_letter WHERE job_id = $1", job_id)
    assert [each["state"] for each in letter] == ["OPEN"]
    errors = "SELECT data FROM cortex.fact WHERE job_id = $1 AND type = 'error' ORDER BY id"
    facts = [json.loads(each["data"]) for each in sql(pods.dsn, errors, job_id)]
    assert [(fact["attempt"], fact["max"]) for fact in facts] == [(1, 2), (2, 2)]
    assert "in flaky" in facts[0]["stack"]


def test_the_domain_is_tried_again_by_the_application_layer(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "flaky", {"how": "app", "times": 2})
    row = until_status(pods.dsn, job_id, "RETRY")
    assert (row["retry_count"], row["task_state"]) == (1, None)
    assert 50 <= (row["next_retry_at"] - row["updated_at"]).total_seconds() <= 60
    move_clock(pods.dsn, 61)
    until_jobs(pods.dsn, "status = 'RETRY' AND retry_count = 2", count=1)
    move_clock(pods.dsn, 122)
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert (row["result"], row["attempt"], row["attempts_spent"]) == (3, 3, None)
    assert attempts(pods.dsn, job_id) == [(1, "retry"), (2, "retry")]
    path = [new for _, new, _ in history(pods.dsn, job_id)]
    assert path == ["PENDING", "RUNNING", "RETRY", "RUNNING", "RETRY", "RUNNING", "COMPLETED"]
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("Each job reaches exactly one terminal state")
def test_spent_retries_fail_the_job(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "flaky", {"how": "app", "times": 9})
    for number in (1, 2):
        condition = f"id = '{job_id}' AND status = 'RETRY' AND retry_count = {number}"
        until_jobs(pods.dsn, condition, count=1)
        move_clock(pods.dsn, 61 * number)
    row = until_status(pods.dsn, job_id, "FAILED")
    assert (row["error_class"], row["error_code"]) == ("TRANSIENT_APP", "transient")
    assert (row["attempt"], row["retry_count"]) == (3, 2)


def test_both_retry_layers_are_shown_and_retry_now_works(pods: Pods) -> None:
    pods.start()
    infra = submit(pods.dsn, "flaky", {"how": "infra"})
    app = submit(pods.dsn, "flaky", {"how": "asked"})
    until_status(pods.dsn, app, "RETRY")
    until_status(pods.dsn, infra, "COMPLETED")
    output = {}
    for job_id in (infra, app):
        shown = run_cli("jobs", "show", str(job_id), dsn=pods.dsn, folder=pods.folder)
        output[job_id] = shown.stdout
    assert "failed · TRANSIENT_INFRA · ConnectionResetError: the line was cut" in output[infra]
    assert "next worker attempt after 2.7s" in output[infra]
    assert "failed · TRANSIENT_APP · come back later · retry 1 after 4m" in output[app]
    hurry = run_cli("jobs", "retry", str(app), "--reason", "now", dsn=pods.dsn, folder=pods.folder)
    assert hurry.exit_code == 0, hurry.stderr
    until_status(pods.dsn, app, "COMPLETED")
