"""The primary dies under load and its synchronous standby is promoted: no job is lost."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self
from uuid import UUID

import pytest

from cortex.domain.errors import UnavailableError
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import jobs
from tests.support.eventually import eventually
from tests.support.pods import Pods, until_pods
from tests.support.records.factories import a_submission
from tests.support.records.rows import assert_one_truth, job_count, new_id, until_jobs
from tests.support.servers.postgres import migrate
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.standby import Standby, both, standby_of, synchronous

BEFORE = 100
AFTER = 50


class Submitter:
    """A client that submits without end, and keeps the acknowledged ids."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter")
        self.acknowledged: list[UUID] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_enough.set()
        self._thread.join()

    def _run(self) -> None:
        with open_session(Profile(dsn=self._dsn, bound_s=2.0)) as call:
            while not self._is_enough.is_set():
                job = a_submission(id=new_id(), type="steps", payload='{"count": 3}')
                try:
                    call(jobs.submit, [job])
                except UnavailableError:
                    continue  # the submission was not acknowledged
                self.acknowledged.append(job.id)


@pytest.fixture
def standby(private_postgres: PrivatePostgres, run_dir: Path, bindir: Path) -> Iterator[Standby]:
    migrate(private_postgres.dsn)
    with standby_of(private_postgres, run_dir, bindir) as running:
        synchronous(private_postgres)
        yield running


def test_pods_and_clients_continue_on_the_promoted_standby(
    private_postgres: PrivatePostgres, standby: Standby, tmp_path: Path
) -> None:
    with closing(Pods(both(private_postgres, standby), tmp_path)) as pods:
        pods.start()
        pods.start()
        go_on_after_a_failover(pods, private_postgres, standby)


def go_on_after_a_failover(pods: Pods, primary: PrivatePostgres, standby: Standby) -> None:
    with Submitter(pods.dsn) as client:
        eventually(lambda: len(client.acknowledged) > BEFORE, what="there is load")
        primary.kill()
        promised = len(client.acknowledged)
        standby.promote_alone()
        eventually(
            lambda: len(client.acknowledged) > promised + AFTER,
            what="clients are served again",
        )
    until_jobs(standby.dsn, "status <> 'COMPLETED'", count=0)
    known = ",".join(f"'{each}'" for each in client.acknowledged)
    assert job_count(standby.dsn, f"id IN ({known})") == len(client.acknowledged)
    until_pods(standby.dsn, READY=2)
    assert_one_truth(standby.dsn)
    assert all(pod.stop() == 0 for pod in pods.all)
