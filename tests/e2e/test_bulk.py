"""Bulk operations of pods that are killed in the middle: nothing is repeated, nothing is lost."""

import pytest

from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.job import JobStatus
from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import jobs
from tests.support.pods import Pods
from tests.support.records.dead_letters import fail, lifecycle
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    new_id,
    submit_many,
    until_status,
)
from tests.support.servers.postgres import sql

COUNT = 100
RETRY = BulkRequest(
    verb=BulkVerb.RETRY, reason="mended", jobs="letter:unresolved type:work", rate_per_s=60.0
)
CANCEL = BulkRequest(verb=BulkVerb.CANCEL, reason="mended", jobs="type:work", rate_per_s=60.0)


@pytest.mark.smoke("A dead pod's jobs go on within two seconds", case="cancel-before_step:4")
@pytest.mark.parametrize(
    "request_, point",
    [
        (RETRY, "before_step:4"),  # a slice is committed, its step is not
        (RETRY, "after_step:4"),
        (CANCEL, "before_step:4"),
    ],
    ids=lambda value: value.verb if isinstance(value, BulkRequest) else value,
)
def test_bulk_operation_survives_a_kill_without_loss_or_repetition(
    pods: Pods, request_: BulkRequest, point: str
) -> None:
    is_retry = request_.verb is BulkVerb.RETRY
    if is_retry:
        fail(pods.dsn, COUNT, steps=1)
    else:
        submit_many(pods.dsn, COUNT, "work", {})
    pods.environment["CORTEX_CRASH_AT"] = point
    killed = pods.start()
    job_id = new_id()
    with open_session(Profile(dsn=pods.dsn)) as call:
        call(jobs.submit, [request_.submission(job_id)], by="ana")
    assert killed.exit_code() == -9
    done = job_count(pods.dsn, "origin_id IS NOT NULL OR status = 'CANCELLED'")
    assert 0 < done < COUNT
    del pods.environment["CORTEX_CRASH_AT"]
    for _ in range(2):
        pods.start()
    row = until_status(pods.dsn, job_id, JobStatus.COMPLETED)
    assert row["result"]["counts"]["changed"] == COUNT
    assert row["result"]["failures"] == []
    assert job_count(pods.dsn, "origin_id IS NOT NULL") == (COUNT if is_retry else 0)
    if is_retry:
        ids = [row["job_id"] for row in sql(pods.dsn, "SELECT job_id FROM cortex.dead_letter")]
        assert {len(lifecycle(pods.dsn, each)) for each in ids} == {1}
    else:
        query = "SELECT count(*) AS n FROM cortex.job_history WHERE new = 'CANCELLED'"
        assert sql(pods.dsn, query)[0]["n"] == COUNT
    assert_one_truth(pods.dsn)
