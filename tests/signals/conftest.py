"""Jobs that wait, on a database that the tests of a module share."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.domain.job import Claim, Lease, Suspend
from cortex.domain.signals import ReceivedSignal
from cortex.domain.waits import SignalWait, Wait
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import jobs, signals, tasks, waits
from tests.e2e.conftest import database, pods
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import job_row, new_id
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

__all__ = ["database", "pods"]


@attrs.define
class Stage:
    """Jobs of one pod, and what is sent to them."""

    dsn: str
    store: Session
    pod_id: UUID = attrs.field(factory=new_id)

    def submit(self, **fields: object) -> UUID:
        submission = a_submission(**fields)
        assert self.store(jobs.submit, [submission]).new == {submission.id}
        return submission.id

    def claim(self, job_id: UUID) -> Claim:
        """Give the job to the pod."""
        claim = self.store(tasks.claim_one, pod_id=self.pod_id, job_id=job_id, types=[JOB_TYPE])
        assert claim, f"job {job_id} has no ready task"
        return claim[0]

    def running(self, **fields: object) -> Claim:
        return self.claim(self.submit(**fields))

    def suspend(
        self, lease: Lease, *wanted: Wait, delay_s: float | None = None, on: str = "signal:x"
    ) -> None:
        """End the attempt with a wish to wait."""
        wish = Suspend(lease=lease, delay_s=delay_s, is_counted=False, waiting_on=on, waits=wanted)
        done = self.store(tasks.suspend, pod_id=self.pod_id, operations=[wish])
        assert done == {lease.job_id}

    def waiting(self, name: str = "x", *, key: str | None = None, **fields: object) -> UUID:
        """Return a job that waits for a signal."""
        lease = self.running(**fields).lease
        self.suspend(lease, SignalWait(name=name, key=key))
        self.wake()
        return lease.job_id

    def send(self, job: UUID | None = None, name: str = "x", payload: str = "1", **to: str) -> UUID:
        return self.store(signals.send, name, payload, job=job, **to)

    def take(
        self, claim: Claim, step: str = "x", name: str = "x", key: str | None = None
    ) -> ReceivedSignal | None:
        taken = self.store(
            signals.take, lease=claim.lease, pod_id=self.pod_id, step=step, name=name, key=key
        )
        assert taken.is_owned
        return taken.signal

    def wake(self) -> int:
        """Handle all that there is; return how many jobs got a task."""
        done, woken = self.store(waits.wake, limit=500), 0
        while done.handled:
            woken += done.woken
            done = self.store(waits.wake, limit=500)
        return woken

    def has_task(self, job_id: UUID) -> bool:
        return job_row(self.dsn, job_id)["worker_job_id"] is not None

    def wait_count(self, job_id: UUID) -> int:
        (row,) = sql(
            self.dsn, "SELECT count(*) AS n FROM cortex.job_wait WHERE job_id = $1", job_id
        )
        count: int = row["n"]
        return count


@pytest.fixture
def stage(shared_database: str) -> Iterator[Stage]:
    with kept_session(Profile(dsn=shared_database, hot_path=True)) as store:
        yield Stage(shared_database, store)


@contextmanager
def open_transaction(dsn: str, query: str, *args: object) -> Iterator[None]:
    """Keep a transaction open that has run a statement; commit it at the end of the block."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        connection = runner.run(asyncpg.connect(dsn))
        try:
            change = connection.transaction()
            runner.run(change.start())
            runner.run(connection.fetch(query, *args))
            yield
            runner.run(change.commit())
        finally:
            runner.run(connection.close())
