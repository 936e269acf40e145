"""A person retries a failed job: a new one continues it, once, as its dead letter records."""

import attrs
import pytest

from cortex.domain.bulk import BulkSlice
from cortex.domain.errors import ConflictError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import bulk, retries
from cortex.store.job_choice import choose_marked_to_retry
from tests.support.life import Life
from tests.support.records.bulk import a_request, an_order
from tests.support.records.rows import job_row, new_id


def test_from_a_failed_job_a_new_one_goes_on_and_only_once(
    store: Session, database: str, life: Life
) -> None:
    failed = life.failed()
    done = store(retries.retry_now, failed, by="ana", reason="mended", new_id=new_id)
    assert done.status is JobStatus.FAILED
    assert done.retried_as is not None
    heir = job_row(database, done.retried_as)
    assert (heir["status"], heir["origin_id"]) == ("PENDING", failed)
    assert done.words == f"goes on as {short_id(done.retried_as)}, from its last checkpoint"
    with pytest.raises(ConflictError, match="was retried by ana"):
        store(retries.retry_now, failed, by="ben", reason="", new_id=new_id)


def test_many_failed_jobs_go_on_in_new_ones(store: Session, life: Life) -> None:
    failed = [life.failed(), life.failed()]
    choice = store(choose_marked_to_retry, failed)
    assert (choice.job_ids, choice.failed, choice.refused) == (failed, 2, {})
    order = an_order(a_request(jobs=""))
    for _ in range(2):
        done = store(bulk.settle, order, choice.job_ids)
        assert isinstance(done, BulkSlice)
        counts = done.counts
        assert (counts.changed, counts.resubmitted, counts.refused) == (2, 2, {})
    again = store(bulk.settle, attrs.evolve(order, id=new_id()), choice.job_ids)
    assert isinstance(again, BulkSlice)
    assert (again.counts.changed, again.counts.refused) == (0, {"settled": 2})
