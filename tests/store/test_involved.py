"""Who is responsible for a job: everybody through whose hands its lineage went."""

import json
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.dead_letter import PayloadEdit
from cortex.domain.schedules.schedule import Schedule
from cortex.postgres.session import Session
from cortex.store import bulk, dead_letters, retries, specs
from cortex.store.background import schedules
from cortex.store.dead_letters import Resubmission
from cortex.store.specs import SpecKind
from tests.support.records.bulk import a_request, an_order
from tests.support.records.dead_letters import fail
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

FLOW: dict[str, Any] = {"inputs": {}, "limits": {}, "steps": []}


def involved(dsn: str, job_id: UUID) -> set[tuple[str | None, str | None]]:
    """Return credential and name of each."""
    lineage = "SELECT coalesce(lineage_id, id) AS id FROM cortex.job_record WHERE id = $1"
    query = f"SELECT * FROM cortex.involved(({lineage}))"  # noqa: S608
    return {(row["credential"], row["name"]) for row in sql(dsn, query, job_id)}


@pytest.fixture
def failed(database: str) -> UUID:
    """A failed job that ana submitted."""
    (job_id,) = fail(database)
    by_ana = "submitted_by = 'ana', submitted_with = 'token:a'"
    sql(database, f"UPDATE cortex.job_record SET {by_ana} WHERE id = $1", job_id)  # noqa: S608
    return job_id


ANA = ("token:a", "ana")
BEN = ("token:b", "ben")


def test_a_retry_of_a_failed_job_names_its_person(
    database: str, store: Session, failed: UUID
) -> None:
    again = new_id()
    wanted = [Resubmission(job_id=failed, new_id=again)]
    store(dead_letters.resubmit, wanted, by="ben", credential="token:b", reason="x")
    assert involved(database, again) == involved(database, failed) == {ANA, BEN}


def test_an_edited_payload_names_its_person(database: str, store: Session, failed: UUID) -> None:
    edit = PayloadEdit.of("work", "{}", '{"to": "me"}')
    again = new_id()
    wanted = [Resubmission(job_id=failed, new_id=again, edit=edit)]
    store(dead_letters.resubmit, wanted, by="ben", credential="token:b", reason="x")
    assert involved(database, again) == {ANA, BEN}


def test_a_retry_at_once_names_its_person(database: str, store: Session, failed: UUID) -> None:
    done = store(
        retries.retry_now, failed, by="ben", credential="token:b", reason="x", new_id=new_id
    )
    assert done.retried_as is not None
    assert involved(database, done.retried_as) == {ANA, BEN}


def test_a_bulk_retry_names_its_person(database: str, store: Session, failed: UUID) -> None:
    order = attrs.evolve(an_order(a_request(), by="ben"), credential="token:b")
    store(bulk.settle, order, [failed])
    assert involved(database, order.heir_id(failed)) == {ANA, BEN}


def test_a_triggered_job_names_two_people(database: str, store: Session) -> None:
    made = Schedule.make(name="nightly", cron="0 * * * *", type="work", arguments={})
    store(schedules.apply, [made], by="ana", credential="token:a", reason="x")
    job_id = store(schedules.trigger, "nightly", by="ben", credential="token:b", reason="x")
    assert involved(database, job_id) == {("token:a", "schedule:nightly"), BEN}


def test_a_schedule_without_a_credential_names_the_login(database: str, store: Session) -> None:
    made = Schedule.make(name="nightly", cron="0 * * * *", type="work", arguments={})
    store(schedules.apply, [made], by="ana", reason="x")
    job_id = store(schedules.trigger, "nightly", by="ben", credential="token:b", reason="x")
    assert involved(database, job_id) == {("db:postgres", "schedule:nightly"), BEN}


def test_a_flow_names_the_person_of_its_version(database: str, store: Session) -> None:
    def apply(person: str, version: int) -> None:
        spec = FLOW | {"description": str(version)}
        store(specs.apply, SpecKind.FLOW, name="f", spec=spec, by=person, credential=person)

    apply("ben", 1)
    job_id = new_id()
    sql(
        database,
        "SELECT cortex.submit_job(id => $1, type => 'run_flow', payload => $2)",
        job_id,
        json.dumps({"flow": "f"}),
    )
    apply("li", 2)
    assert involved(database, job_id) == {("db:postgres", None), ("ben", "ben")}
