"""Holding effects back in two pods at once: by a freeze, and by a quota."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex.domain.quota import Quota
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from cortex.store import breakers, quotas
from tests.support.eventually import eventually
from tests.support.people import user
from tests.support.pods import Pods
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    submit,
    submit_many,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql

APP = ("--app", "tests.support.apps.freeze_app")
JOBS = 20
EACH = 40
FROZEN = "status = 'RETRY' AND waiting_on = 'effects:all' AND worker_job_id IS NULL"


@pytest.fixture
def delivered(tmp_path: Path) -> Path:
    """The folder that jobs deliver into."""
    folder = tmp_path / "delivered"
    folder.mkdir()
    return folder


def lines(folder: Path) -> list[int]:
    """The deliveries of all jobs."""
    return [int(line) for file in folder.iterdir() for line in file.read_text().splitlines()]


@pytest.fixture
def call(pods: Pods) -> Iterator[Session]:
    """A session for the actions of people."""
    with open_session(Profile(dsn=pods.dsn)) as session:
        yield session


def two_pods(pods: Pods) -> None:
    """Start two pods, neither of which can take all jobs."""
    for _ in range(2):
        pods.start(*APP, slots=JOBS * 2 // 3)


def test_freeze_stops_effects_in_all_pods_and_fails_no_job(
    pods: Pods, call: Session, delivered: Path
) -> None:
    two_pods(pods)
    submit_many(pods.dsn, JOBS, "deliver", {"folder": str(delivered), "count": EACH})
    both = "SELECT FROM cortex.job WHERE checkpoint->'seq' > '1' GROUP BY pod_id"
    eventually(lambda: len(sql(pods.dsn, both)) >= 2, what="both pods deliver")
    call(breakers.freeze, by="ana", reason="an audit")

    until_jobs(pods.dsn, FROZEN, count=job_count(pods.dsn, "status <> 'COMPLETED'"))
    late = """
        SELECT FROM cortex.effect e, cortex.breaker b
        WHERE b.name = 'effects:all' AND e.called_at > b.forced_at + interval '10 seconds'
    """
    assert sql(pods.dsn, late) == []
    before = sorted(lines(delivered))
    assert 0 < len(before) < JOBS * EACH
    reading = submit(pods.dsn, "steps", {"count": 5})
    until_status(pods.dsn, reading, "COMPLETED")
    fresh = submit(pods.dsn, "deliver", {"folder": str(delivered), "count": 1})
    until_status(pods.dsn, fresh, "RETRY")
    assert sorted(lines(delivered)) == before

    call(breakers.unfreeze, by=user("ana"), reason="it is over")
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS + 2)
    assert sorted(lines(delivered)) == sorted([*list(range(EACH)) * JOBS, 0])
    assert job_count(pods.dsn, "retry_count > 0") == 0
    assert_one_truth(pods.dsn)


def test_a_quota_holds_for_two_pods_together(pods: Pods, call: Session, delivered: Path) -> None:
    call(quotas.put, Quota.parse("put", "20/day"), by="ana", reason="an audit")
    two_pods(pods)
    submit_many(pods.dsn, JOBS, "deliver", {"folder": str(delivered), "count": 2})
    waits = "status = 'RETRY' AND waiting_on = 'quota:put:calls:day' AND worker_job_id IS NULL"
    eventually(
        lambda: job_count(pods.dsn, waits) + job_count(pods.dsn, "status = 'COMPLETED'") == JOBS,
        what="all have come to their end, or wait",
    )
    assert len(lines(delivered)) == 20
    call(quotas.put, Quota.parse("put", "30/day"), by="ana", reason="ten more")
    eventually(lambda: len(lines(delivered)) == 30, what="ten more")
    call(quotas.remove, "put:calls:day", by="ana", reason="it is over")
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS)
    assert sorted(lines(delivered)) == sorted([0, 1] * JOBS)
    assert_one_truth(pods.dsn)
