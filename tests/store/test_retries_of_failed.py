"""A person retries a failed job: a new one continues it, once, as its dead letter records."""

import attrs
import pytest

from cortex.domain.bulk import BulkSlice
from cortex.domain.dead_letter import PayloadEdit
from cortex.domain.errors import ConflictError
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import parse_filter
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import bulk, dead_letters, retries
from cortex.store.dead_letters import Resubmission
from cortex.store.job_choice import choose_marked_to_retry
from tests.support.life import Life
from tests.support.records.bulk import a_request, an_order
from tests.support.records.dead_letters import fail, lifecycle
from tests.support.records.rows import job_row, new_id, steps
from tests.support.servers.postgres import sql


def test_retry_now_continues_a_failed_job_once(store: Session, database: str, life: Life) -> None:
    failed = life.failed()
    done = store(retries.retry_now, failed, by="ana", reason="mended", new_id=new_id)
    assert done.status is JobStatus.FAILED
    assert done.retried_as is not None
    heir = job_row(database, done.retried_as)
    assert (heir["status"], heir["origin_id"]) == ("PENDING", failed)
    assert done.words == f"goes on as {short_id(done.retried_as)}, from its last checkpoint"
    with pytest.raises(ConflictError, match="was retried by ana"):
        store(retries.retry_now, failed, by="ben", reason="", new_id=new_id)


def test_bulk_retry_continues_failed_jobs_as_new_ones(store: Session, life: Life) -> None:
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


def test_archived_letter_is_retried_with_an_edited_payload(database: str, store: Session) -> None:
    (job_id,) = fail(
        database,
        steps=2,
        error_code="invalid_value",
        error_message="payload of 'work' lacks url",
        submitted={"payload": '{"uri": "a"}'},
    )
    sql(database, "UPDATE cortex.dead_letter SET state = 'ARCHIVED', triaged_at = cortex.now()")
    assert store(dead_letters.choose, parse_filter("type:work"), limit=9) == [job_id]
    (group,) = store(dead_letters.groups, limit=9)
    assert group.count == 1
    edit = PayloadEdit.of("work", {"uri": "a"}, '{"url":"a"}')
    wanted = [Resubmission(job_id=job_id, new_id=new_id(), edit=edit)]
    (done,) = store(dead_letters.resubmit, wanted, by="ana", reason="renamed")
    assert done.retried_as == wanted[0].new_id
    heir = job_row(database, wanted[0].new_id)
    assert (heir["payload"], heir["lineage_id"]) == ('{"url": "a"}', job_id)
    assert [key for *_, key in steps(database, heir["id"])] == ["step 1", "step 2"]
    assert job_row(database, job_id)["payload"] == '{"uri": "a"}'
    ((_, data),) = lifecycle(database, job_id)
    assert (data["by"], data["reason"], data["before"]) == ("ana", "renamed", "ARCHIVED")
    shown = store(dead_letters.show, job_id)
    assert shown.payload_changes == data["payload_changes"]
    assert [each["field"] for each in shown.payload_changes or ()] == ["uri", "url"]
