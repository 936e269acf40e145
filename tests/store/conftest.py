"""Fixtures of the store's tests: calls on a database of the test's own."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Claim
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import jobs, tasks
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session


@pytest.fixture
def store(database: str) -> Iterator[Session]:
    """Calls store methods with the role and the settings of a pod's sessions."""
    with kept_session(Profile(dsn=database, hot_path=True)) as session:
        yield session


@pytest.fixture
def submit(store: Session) -> Callable[..., UUID]:
    """Submits one job; returns its id."""

    def submit_one(**fields: Any) -> UUID:
        submission = a_submission(**fields)
        assert store(jobs.submit, [submission]).new == {submission.id}
        return submission.id

    return submit_one


@pytest.fixture
def claim(store: Session) -> Callable[..., list[Claim]]:
    """Promotes and claims for a pod."""

    def claim_some(pod_id: UUID, *, limit: int = 100) -> list[Claim]:
        store(tasks.promote)
        return store(tasks.claim, pod_id=pod_id, types=[JOB_TYPE], limit=limit)

    return claim_some


@pytest.fixture
def pod_id() -> UUID:
    """A pod that is not in the record."""
    return new_id()


@pytest.fixture
def running(
    submit: Callable[..., UUID], claim: Callable[..., list[Claim]], pod_id: UUID
) -> Callable[..., Claim]:
    """Submits a job and gives it to the pod."""

    def run(**fields: Any) -> Claim:
        job_id = submit(**fields)
        return next(each for each in claim(pod_id) if each.lease.job_id == job_id)

    return run
