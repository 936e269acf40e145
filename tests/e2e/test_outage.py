"""Postgres loses its sessions or restarts under load: nothing accepted is lost or stuck."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from uuid import UUID

import asyncpg
import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    new_id,
    submit,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql
from tests.support.servers.private_postgres import PrivatePostgres

JOBS = 45
STEPS = 4
FAULTS_EACH = 2
RETRY_EVERY_S = 0.05


class Submitter(threading.Thread):
    """Submits jobs one after another, each as often as it takes, under the same id."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="submitter")
        self.dsn = dsn
        self.acknowledged: list[UUID] = []
        self.error_count = 0
        self.gave_up = threading.Event()

    def run(self) -> None:
        while len(self.acknowledged) < JOBS and not self.gave_up.is_set():
            self.submit(new_id())

    def submit(self, job_id: UUID) -> None:
        while not self.gave_up.is_set():
            try:
                submit(self.dsn, "steps", {"count": STEPS, "pause_s": 0.1}, id=job_id)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self.error_count += 1
                self.gave_up.wait(RETRY_EVERY_S)
            except asyncpg.InternalClientError:
                self.error_count += 1
            else:
                self.acknowledged.append(job_id)
                return


@pytest.fixture
def pods(private_postgres: PrivatePostgres, tmp_path: Path) -> Iterator[Pods]:
    """Two pods on a server of the test's own."""
    started = Pods(private_postgres.dsn, tmp_path)
    for _ in range(2):
        started.start(settle_s=1)
    yield started
    started.close()


def end_sessions(server: PrivatePostgres) -> None:
    for pid in server.backend_pids():
        send(pid, SIGTERM)


def crash_a_backend(server: PrivatePostgres) -> None:
    """Postgres ends all sessions and recovers."""
    send(server.backend_pids()[0], SIGKILL)


def send(pid: int, number: Signals) -> None:
    with suppress(ProcessLookupError):  # the submitter's sessions are short
        os.kill(pid, number)


def restart(server: PrivatePostgres) -> None:
    server.stop()
    server.start()


FAULTS = [end_sessions, crash_a_backend, restart]


@pytest.mark.smoke("No acknowledged job is lost", case="restart")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_no_accepted_job_is_lost_or_stuck(
    private_postgres: PrivatePostgres, pods: Pods, fault: Callable[[PrivatePostgres], None]
) -> None:
    dsn = pods.dsn
    submitter = Submitter(dsn)
    submitter.start()
    try:
        for number in range(1, FAULTS_EACH + 1):
            wanted = number * JOBS // (FAULTS_EACH + 1)
            eventually(
                lambda wanted=wanted: len(submitter.acknowledged) >= wanted,  # type: ignore[misc]
                what=f"{wanted} jobs acknowledged",
                within_s=90,
            )
            fault(private_postgres)
        submitter.join(90)
        assert not submitter.is_alive(), f"{len(submitter.acknowledged)} acknowledged"
    finally:
        submitter.gave_up.set()
        submitter.join()
    until_jobs(dsn, f"status = 'COMPLETED' AND result = '{STEPS}'", count=JOBS, within_s=90)
    # The built-in schedules may have submitted jobs of their own.
    rows = sql(
        dsn, "SELECT id FROM cortex.job WHERE coalesce(submitted_by, '') NOT LIKE 'schedule:%'"
    )
    assert {row["id"] for row in rows} == {*submitter.acknowledged}
    assert_one_truth(dsn)
    # The submitter may have been between two calls each time; a pod never is.
    is_felt = submitter.error_count > 0 or any('"warning"' in pod.log for pod in pods.all)
    assert is_felt, "the fault was felt"
    assert all(pod.is_alive for pod in pods.all)
    until_pods(dsn, READY=2)


@pytest.mark.timeout(300)
def test_pods_wait_for_a_database_that_is_away(
    private_postgres: PrivatePostgres, pods: Pods, tmp_path: Path
) -> None:
    """A job that runs meanwhile ends, and its end is written when the database is back."""
    dsn, gate = pods.dsn, tmp_path / "gate"
    running = submit(dsn, "gated", {"gate": str(gate)})
    until_jobs(dsn, "checkpoint->'seq' = '1'", count=1)
    private_postgres.stop()
    gate.touch()
    for pod in pods.all:
        eventually(lambda pod=pod: "heartbeat failed" in pod.log, what="felt")  # type: ignore[misc]
    private_postgres.start()
    assert until_status(dsn, running, "COMPLETED")["attempt"] == 1
    after = submit(dsn, "noop")
    until_status(dsn, after, "COMPLETED")
    assert job_count(dsn, "attempt > 1") == 0
    assert all(pod.is_alive for pod in pods.all)
    assert_one_truth(dsn)
