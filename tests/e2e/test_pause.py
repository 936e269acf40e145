"""A pod that was stopped while others took its jobs: its late writes change nothing."""

import signal
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    submit,
    submit_many,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql

JOBS = 40
STEPS = 30
# A pause of `zombie_s` loses the jobs; a heartbeat is never so late, even on a busy machine.
SILENT: dict[str, float] = {"heartbeat_s": 0.2, "zombie_s": 4, "sweep_s": 0.2}


def begun(pods: Pods, gate: Path) -> None:
    """Jobs with one step each that wait for the gate to do the others."""
    submit_many(pods.dsn, JOBS, "steps", {"count": STEPS, "gate": str(gate)})
    until_jobs(pods.dsn, "checkpoint->'seq' = '1'", count=JOBS)


def until_completed(dsn: str, attempt: int) -> None:
    condition = f"type = 'steps' AND status = 'COMPLETED' AND result = '{STEPS}'"
    until_jobs(dsn, f"{condition} AND attempt = {attempt}", count=JOBS)


@pytest.mark.smoke("Each step is recorded once")
def test_late_writes_of_a_stopped_pod_are_refused_and_it_takes_new_jobs(
    pods: Pods, gate: Path
) -> None:
    stopped = pods.start(**SILENT)
    begun(pods, gate)
    heir = pods.start(**SILENT)
    stopped.signal(signal.SIGSTOP)
    # While it is stopped others take its jobs; then the gate opens, and both want to continue.
    until_jobs(pods.dsn, "attempt = 2 AND heartbeat_at IS NOT NULL", count=JOBS)
    gate.touch()
    stopped.signal(signal.SIGCONT)
    until_completed(pods.dsn, attempt=2)
    late = "SELECT DISTINCT attempt FROM cortex.job_step WHERE seq > 1"
    assert [row["attempt"] for row in sql(pods.dsn, late)] == [2]
    ended = "SELECT DISTINCT attempt, outcome FROM cortex.job_attempt"
    assert [tuple(row) for row in sql(pods.dsn, ended)] == [(1, "lease_expired")]
    gone = "SELECT FROM cortex.pod WHERE name = $1 AND running = 0"
    eventually(lambda: sql(pods.dsn, gone, stopped.name), what="it has stopped the lost jobs")
    assert heir.stop() == 0
    until_pods(pods.dsn, READY=1, STOPPED=1)
    after = submit(pods.dsn, "noop")
    assert until_status(pods.dsn, after, "COMPLETED")["pod"] == stopped.name
    assert stopped.stop() == 0
    assert_one_truth(pods.dsn)


def test_a_stop_in_the_middle_of_writing_leaves_one_truth(pods: Pods, gate: Path) -> None:
    """The statement that was on its way counts, or does not: never twice, never in between."""
    stopped = pods.start(**SILENT)
    begun(pods, gate)
    pods.start(**SILENT)
    gate.touch()
    writing = "SELECT FROM cortex.job_step WHERE seq = 3"
    eventually(lambda: sql(pods.dsn, writing), what="the writing begins")
    stopped.signal(signal.SIGSTOP)
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS)
    stopped.signal(signal.SIGCONT)
    until_jobs(pods.dsn, f"result = '{STEPS}'", count=JOBS)
    assert_one_truth(pods.dsn)


def test_short_pause_costs_no_attempt(pods: Pods, gate: Path) -> None:
    patient = SILENT | {"zombie_s": 60}
    paused = pods.start(**patient)
    begun(pods, gate)
    pods.start(**patient)
    paused.signal(signal.SIGSTOP)
    # Long enough for two looks of the other pod and several sweeps.
    ahead = "SELECT FROM cortex.pod a, cortex.pod b WHERE a.heartbeat_at > b.heartbeat_at + '2 s'"
    eventually(lambda: sql(pods.dsn, ahead), what="the other pod is two seconds ahead")
    paused.signal(signal.SIGCONT)
    gate.touch()
    until_completed(pods.dsn, attempt=1)
    assert_one_truth(pods.dsn)
