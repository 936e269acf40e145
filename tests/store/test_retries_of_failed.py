"""A person retries a failed job: a new one continues it, once, as its dead letter records."""

import pytest

from cortex.domain.errors import ConflictError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import retries
from cortex.store.job_choice import choose_marked_to_retry, retry_chosen
from tests.support.life import Life
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
    done = store(retry_chosen, choice.job_ids, by="ana", reason="mended", new_id=new_id)
    assert (done.changed, done.resubmitted, done.refused) == (2, 2, {})
    again = store(retry_chosen, choice.job_ids, by="ben", reason="", new_id=new_id)
    assert (again.changed, [why.name for why in again.refused]) == (0, ["SETTLED"])
