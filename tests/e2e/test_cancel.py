"""Cancelling by the command line: at once, soon, too late, or after a pod's death."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.support.people import me
from tests.support.pods import Pods, Ran, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    history,
    job_count,
    job_row,
    submit,
    submit_many,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql

CONFLICT = 5


def cancel(pods: Pods, *job_ids: UUID, more: tuple[str, ...] = ()) -> Ran:
    names = [str(each) for each in job_ids]
    words = ("jobs", "cancel", *names, "--yes", "--as", "ana", "--reason", "no need", *more)
    return run_cli(*words, "--json", dsn=pods.dsn, folder=pods.folder)


def begin(pods: Pods, gate: Path) -> UUID:
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    return job_id


def assert_cancelled(dsn: str, job_id: UUID, *, attempt: int) -> None:
    row = job_row(dsn, job_id)
    assert (row["status"], row["attempt"], row["task_state"]) == ("CANCELLED", attempt, None)
    assert (row["cancelled_by"], row["cancel_reason"]) == (me("ana"), "no need")
    (last,) = sql(
        dsn,
        "SELECT metadata->>'by' AS by, metadata->>'reason' AS reason FROM cortex.job_history "
        "WHERE job_id = $1 AND new = 'CANCELLED'",
        job_id,
    )
    assert tuple(last) == (me("ana"), "no need")


def test_a_job_that_waits_is_cancelled_at_once(pods: Pods) -> None:
    waiting = submit(pods.dsn, "noop")
    later = submit(pods.dsn, "noop", queue_name="q")
    ran = cancel(pods, waiting, later)
    assert ran.exit_code == 0, ran.stderr
    for job_id in (waiting, later):
        assert_cancelled(pods.dsn, job_id, attempt=0)
        assert history(pods.dsn, job_id)[-1] == ("PENDING", "CANCELLED", 0)
    assert cancel(pods, waiting).exit_code == CONFLICT
    pods.start()
    until_status(pods.dsn, submit(pods.dsn, "noop"), "COMPLETED")
    assert job_count(pods.dsn, "status = 'CANCELLED' AND attempt = 0") == 2
    assert_one_truth(pods.dsn)


def test_a_running_job_is_stopped_by_its_pod(pods: Pods, gate: Path) -> None:
    owner, bystander = pods.start(), pods.start()
    job_id = begin(pods, gate)
    other = begin(pods, gate)
    ran = cancel(pods, job_id)
    assert ran.exit_code == 0, ran.stderr
    until_status(pods.dsn, job_id, "CANCELLED")
    assert_cancelled(pods.dsn, job_id, attempt=1)
    gate.touch()
    assert until_status(pods.dsn, other, "COMPLETED")["attempt"] == 1
    assert owner.is_alive
    assert bystander.is_alive
    assert_one_truth(pods.dsn)


def test_a_running_job_is_stopped_without_notifications(pods: Pods, gate: Path) -> None:
    """A hint may be lost: the pod asks by itself once a second."""
    pods.start()
    job_id = begin(pods, gate)
    sql(
        pods.dsn,
        "UPDATE cortex.job_record SET cancel_requested_at = cortex.now(), cancelled_by = $2, "
        "cancel_reason = 'no need' WHERE id = $1",
        job_id,
        me("ana"),
    )
    until_status(pods.dsn, job_id, "CANCELLED")
    assert_cancelled(pods.dsn, job_id, attempt=1)


def test_cancelling_can_wait_for_the_end(pods: Pods, gate: Path) -> None:
    pods.start()
    job_id = begin(pods, gate)
    assert cancel(pods, job_id, more=("--wait",)).exit_code == 0
    assert_cancelled(pods.dsn, job_id, attempt=1)


@pytest.mark.smoke("Each job reaches exactly one terminal state")
def test_a_race_with_completion_has_one_winner(pods: Pods, gate: Path) -> None:
    """Forty jobs end while they are cancelled: each is one or the other, and says so."""
    pods.start()
    pods.start()
    payload = {"count": 8, "gate": str(gate), "pause_s": 0.05}
    submit_many(pods.dsn, 40, "steps", payload)
    until_jobs(pods.dsn, "checkpoint->'seq' = '1'", count=40)
    gate.touch()
    ids = [row["id"] for row in sql(pods.dsn, "SELECT id FROM cortex.job ORDER BY id")]
    ran = cancel(pods, *ids)
    assert ran.exit_code in {0, CONFLICT}, ran.stderr
    until_jobs(pods.dsn, "status IN ('COMPLETED', 'CANCELLED')", count=40)
    assert job_count(pods.dsn, "(result IS NOT NULL) <> (status = 'COMPLETED')") == 0
    output = {UUID(each["id"]): each["error"] for each in ran.document["jobs"]}
    ended = {row["id"]: row["status"] for row in sql(pods.dsn, "SELECT id, status FROM cortex.job")}
    assert all(ended[each] == "COMPLETED" for each, error in output.items() if error == "conflict")
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("Each job reaches exactly one terminal state")
def test_cancelled_job_of_a_killed_pod_is_cancelled_at_takeover(pods: Pods, gate: Path) -> None:
    first = pods.start()
    job_id = begin(pods, gate)
    first.kill()
    assert cancel(pods, job_id).exit_code == 0
    assert job_row(pods.dsn, job_id)["status"] == "RUNNING", "nobody knows yet that its pod is dead"
    pods.start()
    until_status(pods.dsn, job_id, "CANCELLED")
    assert_cancelled(pods.dsn, job_id, attempt=1)  # and never begun again
    assert_one_truth(pods.dsn)


def test_a_job_between_two_attempts_is_cancelled_at_once(pods: Pods) -> None:
    pods.start()
    job_id = submit(pods.dsn, "misbehave", {"how": "raise"})
    until_job(pods.dsn, job_id, lambda row: row["task_state"] == "LATER", "to be retried")
    assert cancel(pods, job_id).exit_code == 0
    assert_cancelled(pods.dsn, job_id, attempt=1)
    assert_one_truth(pods.dsn)


def test_cancelling_the_head_of_a_queue_lets_the_next_one_run(pods: Pods, gate: Path) -> None:
    pods.start()
    head = submit(pods.dsn, "gated", {"gate": str(gate)}, queue_name="q")
    following = submit(pods.dsn, "noop", queue_name="q")
    until_job(pods.dsn, head, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    assert job_row(pods.dsn, following)["status"] == "PENDING"
    assert cancel(pods, head).exit_code == 0
    until_status(pods.dsn, following, "COMPLETED")
    assert_cancelled(pods.dsn, head, attempt=1)
