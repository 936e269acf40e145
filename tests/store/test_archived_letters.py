"""Archived dead letters wait for a person like all others, and go on with another payload."""

from cortex.domain.dead_letter import DeadLetterFilter, PayloadEdit
from cortex.postgres.session import Session
from cortex.store import dead_letters
from cortex.store.dead_letters import Resubmission
from tests.support.records.dead_letters import fail, lifecycle
from tests.support.records.rows import job_row, new_id, steps
from tests.support.servers.postgres import sql


def test_an_archived_letter_is_retried_with_another_payload_and_its_effects_stay(
    database: str, store: Session
) -> None:
    (job_id,) = fail(
        database,
        steps=2,
        error_code="invalid_value",
        error_message="payload of 'work' lacks url",
        submitted={"payload": '{"uri": "a"}'},
    )
    sql(database, "UPDATE cortex.dead_letter SET state = 'ARCHIVED', triaged_at = cortex.now()")
    assert store(dead_letters.choose, DeadLetterFilter(type="work"), limit=9) == [job_id]
    (group,) = store(dead_letters.groups, DeadLetterFilter(), limit=9)
    (newest,) = store(dead_letters.newest, looked_max=9, limit=9)
    assert (group.count, newest.count) == (1, 1)
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
    assert [each["field"] for each in shown.payload_changes] == ["uri", "url"]
