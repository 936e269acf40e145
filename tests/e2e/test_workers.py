"""A pod of several worker processes: each may die alone, people see and stop one pod."""

import http.client
import json
import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.e2e.test_http import address_of, get
from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, end_of_pod, run_cli, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    submit,
    submit_many,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql

DRAINED = 0
USAGE = 2
HELD_BY = "SELECT DISTINCT locked_by FROM cortex_worker.task WHERE state = 'LOCKED'"
WORKERS = "SELECT id, worker FROM cortex.pod WHERE state = 'READY' ORDER BY worker"


def workers_of(pod: Pod) -> list[psutil.Process]:
    """The processes of its workers; those that fork runners are their children."""
    return psutil.Process(pod.process.pid).children()


def ready_workers(pods: Pods) -> dict[int, UUID]:
    """The ids of the rows of the newest ready workers, by their numbers."""
    rows = sql(pods.dsn, WORKERS)
    assert len(rows) <= 3, "one that died stays until it is taken over"
    return {row["worker"]: row["id"] for row in rows} if len(rows) == 2 else {}


def listed(pods: Pods) -> list[dict[str, Any]]:
    """The rows of `cortex pods ls`."""
    ran = run_cli("pods", "ls", "--json", dsn=pods.dsn, folder=pods.folder)
    found: list[dict[str, Any]] = ran.document["pods"]
    return found


def scraped(pod: Pod, token: str) -> dict[str, float]:
    """The pod's metrics by series."""
    connection = http.client.HTTPConnection(*address_of(pod), timeout=10)
    with closing(connection):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def kill_a_worker(pod: Pod) -> None:
    victim = workers_of(pod)[-1]
    victim.kill()
    eventually(
        lambda: victim.pid not in {each.pid for each in workers_of(pod)}, what="the worker is gone"
    )


@pytest.mark.smoke("A dead pod's jobs go on within two seconds")
def test_killed_worker_is_replaced_and_no_work_is_lost_or_doubled(pods: Pods, gate: Path) -> None:
    pod = pods.start("--workers", "2", "--slots", "20")
    (row,) = listed(pods)
    assert (row["name"], row["workers"], row["slots"]) == (pod.name, 2, 20)
    submit_many(pods.dsn, 20, "steps", {"count": 3, "gate": str(gate)})
    submit_many(pods.dsn, 200, "noop", {})
    until_jobs(pods.dsn, "status = 'RUNNING' AND checkpoint->>'seq' = '1'", count=20)
    assert len(sql(pods.dsn, HELD_BY)) == 2, "both of them work, on ten slots each"
    before = ready_workers(pods)
    kill_a_worker(pod)

    def is_back() -> bool:
        now = ready_workers(pods)
        return set(now) == {1, 2} and now[1] == before[1] and now[2] != before[2]

    eventually(is_back, what="it is back")
    gate.touch()
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=220)
    twice = "SELECT job_id FROM cortex.job_step GROUP BY job_id HAVING count(*) <> 3"
    assert sql(pods.dsn, twice) == []
    died = sql(pods.dsn, "SELECT FROM cortex.job_attempt WHERE outcome = 'pod_died'")
    assert len(died) == 10
    assert_one_truth(pods.dsn)
    (row,) = listed(pods)
    assert (row["name"], row["workers"]) == (pod.name, 2)
    assert pod.stop() == DRAINED


def test_a_signal_to_the_whole_process_group_drains_all_workers_once(
    pods: Pods, gate: Path
) -> None:
    pod = pods.start("--workers", "2", "--slots", "2", **end_of_pod(30))
    for _ in range(2):
        submit(pods.dsn, "gated", {"gate": str(gate)})
    until_jobs(pods.dsn, "status = 'RUNNING' AND checkpoint->>'seq' = '1'", count=2)
    processes = [psutil.Process(pod.process.pid), *workers_of(pod)]
    for each in processes:  # as a terminal and a service manager do
        each.send_signal(signal.SIGINT)
    until_pods(pods.dsn, DRAINING=2)
    (row,) = listed(pods)
    assert (row["state"], row["phase"], row["running"]) == ("DRAINING", "jobs", 2)
    gate.touch()
    assert pod.exit_code() == DRAINED
    until_jobs(pods.dsn, "status = 'COMPLETED' AND attempt = 1", count=2)
    until_pods(pods.dsn, STOPPED=2)
    assert listed(pods) == []


def test_a_second_signal_hands_the_jobs_of_all_workers_back_at_once(pods: Pods, gate: Path) -> None:
    pod = pods.start("--workers", "2", "--slots", "2", **end_of_pod(60))
    job_ids = [submit(pods.dsn, "gated", {"gate": str(gate)}) for _ in range(2)]
    until_jobs(pods.dsn, "status = 'RUNNING' AND checkpoint->>'seq' = '1'", count=2)
    pod.signal(signal.SIGTERM)
    until_pods(pods.dsn, DRAINING=2)
    pod.signal(signal.SIGINT)
    assert pod.exit_code() == 128 + signal.SIGINT
    assert [attempts(pods.dsn, each) for each in job_ids] == [[(1, "handed_back")]] * 2


def test_killed_pod_ends_its_workers_and_another_pod_takes_over(pods: Pods, gate: Path) -> None:
    pod = pods.start("--workers", "2", "--slots", "2")
    job_ids = [submit(pods.dsn, "gated", {"gate": str(gate)}) for _ in range(2)]
    until_jobs(pods.dsn, "status = 'RUNNING' AND checkpoint->>'seq' = '1'", count=2)
    workers = workers_of(pod)
    other = pods.start()
    pod.kill()
    psutil.wait_procs(workers, timeout=10)
    assert not any(each.is_running() for each in workers)
    for job_id in job_ids:
        until_job(pods.dsn, job_id, lambda row: row["pod"] == other.name, "on the other pod")
    gate.touch()
    for job_id in job_ids:
        assert until_status(pods.dsn, job_id, "COMPLETED")["attempt"] == 2
    assert_one_truth(pods.dsn)


def test_crash_point_ends_each_worker_and_its_successor_completes_the_job(pods: Pods) -> None:
    pod = pods.start("--workers", "2", crash_at="after_claim:1")
    job_id = submit(pods.dsn, "noop")
    until_status(pods.dsn, job_id, "COMPLETED")
    assert pod.is_alive
    assert_one_truth(pods.dsn)


def test_a_worker_that_dies_while_others_start_is_replaced(pods: Pods) -> None:
    """It was ready: what ended it, such as its job, does not keep the pod from starting."""
    job_id = submit(pods.dsn, "noop")
    pod = pods.start("--workers", "2", crash_at="after_finish:1")
    until_status(pods.dsn, job_id, "COMPLETED")
    assert pod.log.count('"worker died"') == 1
    assert pod.stop() == DRAINED


def test_killed_workers_are_replaced_before_their_pod_is_ready(pods: Pods) -> None:
    job_id = submit(pods.dsn, "noop")
    pod = pods.start("--workers", "2", crash_at="before_register:1")
    until_status(pods.dsn, job_id, "COMPLETED")
    assert pod.log.count('"worker died"') == 2
    assert pod.stop() == DRAINED


def test_a_person_drains_all_workers_by_the_name_of_the_pod(pods: Pods) -> None:
    pod = pods.start("--workers", "2")
    cli = partial(run_cli, dsn=pods.dsn, folder=pods.folder)
    assert cli("pods", "drain", pod.name, "--reason", "deploy").exit_code == 0
    eventually(lambda: pod.log.count('"drain requested"') == 2, what="both have read it")
    kill_a_worker(pod)
    eventually(lambda: pod.log.count('"drain requested"') == 3, what="a new one has, too")
    job_id = submit(pods.dsn, "noop")
    (row,) = listed(pods)
    assert (row["state"], row["drain_reason"]) == ("DRAINING", "deploy")
    assert job_row(pods.dsn, job_id)["status"] == "PENDING"
    assert cli("pods", "undrain", pod.name).exit_code == 0
    until_status(pods.dsn, job_id, "COMPLETED")


def test_one_metrics_page_sums_the_workers_and_never_falls(pods: Pods, tmp_path: Path) -> None:
    pod = pods.start("--workers", "2", "--slots", "7", "--http", "127.0.0.1:0")
    made = Cortex(tmp_path, pods.dsn)("tokens", "create", "--name", "ana", "--role", "viewer")

    def page() -> dict[str, float]:
        return scraped(pod, made.out.strip())

    submit_many(pods.dsn, 300, "noop", {})
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=300)
    claims, ended = 'cortex_claims_total{type="noop"}', "cortex_job_attempts_count"
    before = page()
    assert (before["cortex_slots"], before[claims], before[ended]) == (7, 300, 300)
    kill_a_worker(pod)
    assert page()[claims] == 300, "what the dead one had counted is kept"
    eventually(lambda: page()["cortex_slots"] == 7, what="a new one has its slots")
    submit_many(pods.dsn, 50, "noop", {})
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=350)
    after = page()
    assert (after[claims], after[ended]) == (350, 350)
    assert all(after[name] >= before[name] for name in before if name.endswith("_total"))


@pytest.mark.parametrize("number", ["0", "65", "x"])
def test_a_number_of_workers_that_cannot_be_is_refused_in_one_line(pods: Pods, number: str) -> None:
    ran = run_cli("up", "--workers", number, "--json", dsn=pods.dsn, folder=pods.folder)
    assert "workers" in ran.refused(exit_code=USAGE)["message"]


def test_startup_error_of_a_pod_with_workers_is_reported_once(pods: Pods) -> None:
    pod = pods.launch("--workers", "2", "--http", "0.0.0.0:0")
    assert pod.exit_code() == USAGE
    assert pod.log.count("there is no token yet") == 1
    assert sql(pods.dsn, WORKERS) == []


def test_a_stopped_worker_holds_no_page_up(pods: Pods, tmp_path: Path) -> None:
    pod = pods.start("--workers", "2", "--http", "127.0.0.1:0")
    made = Cortex(tmp_path, pods.dsn)("tokens", "create", "--name", "ana", "--role", "viewer")
    victim = workers_of(pod)[-1]
    victim.send_signal(signal.SIGSTOP)
    assert scraped(pod, made.out.strip())["cortex_slots"] == 500, "of the other one"
    os.kill(victim.pid, signal.SIGCONT)
    assert pod.stop() == DRAINED


def probed(pod: Pod) -> tuple[int, bool, bool]:
    """The status of `/readyz`, whether all workers are ready, and whether the pod drains."""
    status, found = get(pod, "/readyz")
    return status, found["workers"], not found["not_draining"]


def test_a_pod_is_ready_while_all_of_its_workers_are(pods: Pods, gate: Path) -> None:
    pod = pods.start("--workers", "2", "--slots", "2", "--http", "127.0.0.1:0", **end_of_pod(30))
    assert probed(pod) == (200, True, False), "as soon as it is announced"
    victim = workers_of(pod)[-1]
    victim.send_signal(signal.SIGSTOP)
    eventually(lambda: probed(pod) == (503, False, False), what="one that hangs is not ready")
    assert get(pod, "/healthz")[0] == 200
    os.kill(victim.pid, signal.SIGCONT)
    eventually(lambda: probed(pod) == (200, True, False), what="it goes on")
    kill_a_worker(pod)
    eventually(lambda: probed(pod) == (503, False, False), what="it is being replaced")
    eventually(lambda: probed(pod) == (200, True, False), what="the new one is ready")
    for _ in range(2):
        submit(pods.dsn, "gated", {"gate": str(gate)})
    until_jobs(pods.dsn, "status = 'RUNNING' AND checkpoint->>'seq' = '1'", count=2)
    pod.signal(signal.SIGTERM)
    eventually(lambda: probed(pod)[::2] == (503, True), what="it drains")
    gate.touch()
    assert pod.exit_code() == DRAINED


def test_workers_without_a_terminal_are_announced_as_one_pod(pods: Pods) -> None:
    pod = pods.start("--workers", "3")
    assert json.loads(json.dumps(pod.ready))["pod"] == pod.name
    assert pod.name.endswith(f":{pod.process.pid}")
    assert len(workers_of(pod)) == 3
