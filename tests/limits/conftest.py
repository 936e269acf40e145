"""Calls on a database of the test's own, and the limits of one job type."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.job import Claim, Finish, JobStatus, Release, Suspend
from cortex.domain.job_limits import JobLimit
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import jobs, limits, retries, tasks
from cortex.store.passes import DuePass
from tests.e2e.conftest import pods
from tests.support.records.factories import a_submission
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import sql

__all__ = ["pods", "stage"]

TYPE = "limited"


@attrs.define
class Stage:
    """One job type with limits, and a pod that takes whatever is let through."""

    call: Session
    dsn: str
    pod_id: UUID = attrs.field(factory=new_id)

    def declare(self, *declared: JobLimit, of: str = TYPE) -> int:
        return self.call(limits.declare, {of: declared})

    def submit(self, payload: Mapping[str, Any] | None = None, /, **fields: Any) -> UUID:
        submission = a_submission(
            **{"type": TYPE, "payload": json.dumps(dict(payload or {}))} | fields
        )
        assert self.call(jobs.submit, [submission]).new == {submission.id}
        return submission.id

    def submit_many(self, count: int, payload: Mapping[str, Any], **fields: Any) -> None:
        text = json.dumps(dict(payload))
        each = {"type": TYPE, "payload": text} | fields
        self.call(jobs.submit, [a_submission(**each) for _ in range(count)])

    def admit(self, limit: int = 500) -> DuePass:
        return self.call(limits.admit, limit=limit)

    def admit_all(self) -> int:
        """As the runner: until nothing more is let through."""
        total = 0
        while count := self.admit().count:
            total += count
        return total

    def claim(self, limit: int = 500) -> list[Claim]:
        self.call(tasks.promote)
        self.admit_all()
        return self.call(tasks.claim, pod_id=self.pod_id, types=[TYPE, "other"], limit=limit)

    def finish(self, *claims: Claim) -> None:
        ends = [Finish(lease=each.lease, status=JobStatus.COMPLETED) for each in claims]
        self.call(jobs.finish, pod_id=self.pod_id, operations=ends)

    def end(self, claim: Claim) -> None:
        self.finish(claim)

    def release(self, claim: Claim, **fields: Any) -> None:
        end = Release(lease=claim.lease, **{"outcome": "handed_back"} | fields)
        self.call(tasks.release, pod_id=self.pod_id, operations=[end])

    def suspend(
        self, claim: Claim, *, delay_s: float | None = 0.0, waiting_on: str = "sleep"
    ) -> None:
        wait = Suspend(lease=claim.lease, delay_s=delay_s, waiting_on=waiting_on, is_counted=False)
        self.call(tasks.suspend, pod_id=self.pod_id, operations=[wait])

    def resume(self) -> None:
        self.call(retries.due)

    def states(self) -> Counter[str]:
        rows = sql(self.dsn, "SELECT state::text FROM cortex_worker.task")
        return Counter(row["state"] for row in rows)

    def holds(self) -> Counter[str]:
        """The places that are held, by key."""
        return Counter(
            row["key"] for row in sql(self.dsn, "SELECT key FROM cortex_worker.limit_hold")
        )


@pytest.fixture
def stage(database: str) -> Iterator[Stage]:
    """Calls store methods with the role and the settings of a pod's sessions."""
    with kept_session(Profile(dsn=database, hot_path=True)) as session:
        yield Stage(session, database)
