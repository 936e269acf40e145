"""Fixtures of the SQL tests: store methods as a pod calls them, without a pod."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Submission
from cortex.postgres.database import Profile
from cortex.postgres.session import Session
from cortex.store import jobs, pods, tasks
from tests.support.records.rows import new_id
from tests.support.servers.kept_sessions import kept_session

Enter = Callable[..., UUID]


@pytest.fixture
def store(database: str) -> Iterator[Session]:
    """Calls store methods with the role and the settings of a pod's sessions."""
    with kept_session(Profile(dsn=database, hot_path=True)) as session:
        yield session


@pytest.fixture
def submit(store: Session) -> Callable[..., UUID]:
    """Submits one job of a type; returns its id."""

    def submit_one(type_: str = "work", **fields: Any) -> UUID:
        submission = Submission(id=new_id(), type=type_, **fields)
        assert store(jobs.submit, [submission]).new == {submission.id}
        return submission.id

    return submit_one


@pytest.fixture
def enter_pod(store: Session) -> Callable[[int], UUID]:
    """Registers a pod with this lock key, which no session holds; returns its id."""

    def enter(lock_key: int) -> UUID:
        pod = pods.Pod(
            id=new_id(), lock_key=lock_key, name="test", version="0", job_types=("work",), slots=9
        )
        store(pods.register, pod)
        return pod.id

    return enter


@pytest.fixture
def claim(store: Session) -> Callable[..., list[Claim]]:
    """Promotes and claims for a pod."""

    def claim_some(pod_id: UUID, *types: str, limit: int = 100) -> list[Claim]:
        store(tasks.promote)
        return store(tasks.claim, pod_id=pod_id, types=types or ("work",), limit=limit)

    return claim_some
