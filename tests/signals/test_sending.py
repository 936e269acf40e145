"""Signals in SQL: who may send which, and who takes them in which order."""

import json
from typing import Any

import pytest

from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidValueError,
    KeyReusedError,
    NotFoundError,
)
from cortex.domain.job import Finish, JobStatus
from cortex.postgres.database import SUBMITTER_ROLE, Profile
from cortex.postgres.session import open_session
from cortex.store import dead_letters, jobs, signals
from cortex.store.dead_letters import Resubmission
from tests.signals.conftest import Stage
from tests.support.logins import login_with, name_of
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

MEGABYTE = '"' + "x" * 1_000_000 + '"'


def test_signals_of_a_name_are_taken_once_in_the_order_of_arrival(stage: Stage) -> None:
    claim = stage.running()
    for number in range(5):
        stage.send(claim.lease.job_id, payload=str(number))
        stage.send(claim.lease.job_id, name="y", payload=f'"{number}"')
    taken = [stage.take(claim, f"x#{number}") for number in range(6)]
    assert [each and each.payload for each in taken] == [*"01234", None]
    again = stage.take(claim, "x#3")
    assert again == taken[3], "asking again gives the same one"


def test_an_attempt_that_is_over_takes_nothing(stage: Stage) -> None:
    claim = stage.running()
    stage.send(claim.lease.job_id)
    taken = stage.store(
        signals.take, lease=claim.lease, pod_id=new_id(), step="x", name="x", key=None
    )
    assert (taken.is_owned, taken.signal) == (False, None)
    assert stage.take(claim) is not None


def test_a_signal_to_a_key_waits_for_the_first_job_that_asks(stage: Stage) -> None:
    stage.send(key="order-1", payload='"early"')
    one, two = stage.running(), stage.running()
    stage.send(key="order-1", payload='"late"')
    assert stage.take(one) is None, "what is sent to a key is not in a job's own queue"
    texts = [stage.take(each, key="order-1") for each in (one, two, one)]
    assert [each and each.payload for each in texts] == ['"early"', '"late"', '"early"']
    foreign = stage.running(tenant="acme")
    stage.send(key="order-2")
    assert stage.take(foreign, key="order-2") is None, "that is for another tenant"
    stage.send(key="order-2", tenant="acme")
    assert stage.take(foreign, key="order-2") is not None


def test_the_same_idempotency_key_sends_one_signal(stage: Stage) -> None:
    claim = stage.running()
    job_id = claim.lease.job_id
    first = stage.send(job_id, payload='{"a": 1}', idempotency_key="k")
    assert stage.send(job_id, payload='{"a":1}', idempotency_key="k") == first
    assert stage.take(claim) is not None
    assert stage.send(job_id, payload='{"a": 1}', idempotency_key="k") == first
    with pytest.raises(KeyReusedError, match=f'key "k" was used for another signal: {first}'):
        stage.send(job_id, payload="2", idempotency_key="k")
    other = stage.send(stage.submit(), payload="2", idempotency_key="k")
    assert other != first, "another job has keys of its own"
    keyed = stage.send(key="order-3", idempotency_key="k")
    assert stage.send(key="order-3", idempotency_key="k") == keyed


@pytest.mark.parametrize(
    "to, error, message",
    [
        ({"name": ""}, InvalidValueError, "name '' of a signal is not text of 1 to 100 characters"),
        ({"name": "x" * 101}, InvalidValueError, "of a signal is not text of 1 to 100 characters"),
        ({"name": "a\nb"}, InvalidValueError, "of a signal is not text of 1 to 100 characters"),
        ({}, InvalidValueError, 'signal "x" is for neither a job nor a key'),
        ({"key": "k" * 501}, InvalidValueError, 'signal "x" is not text of 1 to 500 characters'),
        ({"key": "k", "payload": MEGABYTE}, InvalidValueError, "1000002 bytes of JSON, more than"),
        ({"key": "k", "payload": "{"}, InvalidValueError, "invalid input syntax for type json"),
        ({"key": "k", "idempotency_key": " "}, InvalidValueError, "visible ASCII characters"),
        (
            {"key": "k", "tenant": ""},
            InvalidValueError,
            "tenant '' of signal \"x\" is not text of 1",
        ),
        ({"key": "k", "tenant": "t" * 101}, InvalidValueError, "not text of 1 to 100 characters"),
        ({"job": new_id()}, NotFoundError, "does not exist"),
    ],
)
def test_a_signal_that_nobody_can_take_is_refused(
    stage: Stage, to: dict[str, str], error: type[CortexError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        stage.send(**to)  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    with pytest.raises(InvalidValueError, match="is for both a job and a key"):
        stage.send(stage.submit(), key="k")


def test_content_counts_by_its_own_bytes(stage: Stage) -> None:
    """The database shows it with a blank after each comma and colon."""
    value: list[Any]
    for value in ([1] * 100_000, [', "\\: ' * 20_000, *[{"a, ": 1}] * 10_000]):
        text = json.dumps(value, separators=(",", ":"))
        assert len(text) < 262_144 < len(json.dumps(value))
        stage.send(key="large", payload=text)
    value = [', "\\: ' * 33_000, *[1] * 1_000]
    text = json.dumps(value, separators=(",", ":"))
    with pytest.raises(InvalidValueError, match=f"has {len(text)} bytes of JSON, more than 262144"):
        stage.send(key="large", payload=text)


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.CANCELLED])
def test_a_job_that_has_ended_receives_no_signals(stage: Stage, status: JobStatus) -> None:
    claim = stage.running()
    end = Finish(lease=claim.lease, status=status, result=None)
    assert stage.store(jobs.finish, pod_id=stage.pod_id, operations=[end])
    with pytest.raises(ConflictError, match=f"is {status.value}: it has ended") as caught:
        stage.send(claim.lease.job_id)
    assert caught.value.hint == "submit it anew, or send the signal to a key"


def test_a_job_that_continues_a_failed_one_takes_its_signals(stage: Stage) -> None:
    claim = stage.running()
    job_id = claim.lease.job_id
    stage.send(job_id, payload='"taken"')
    stage.send(job_id, payload='"left"')
    first = stage.take(claim)
    end = Finish(lease=claim.lease, status=JobStatus.FAILED, error="no", code="job_failed")
    assert stage.store(jobs.finish, pod_id=stage.pod_id, operations=[end])
    with pytest.raises(ConflictError) as caught:
        stage.send(job_id)
    assert caught.value.hint == f"retry it first: cortex dead retry {job_id}"
    new = Resubmission(job_id=job_id, new_id=new_id())
    stage.store(dead_letters.resubmit, [new], by="ana", reason="mended")
    stage.send(job_id, payload='"after"')
    next_claim = stage.claim(new.new_id)
    assert stage.take(next_claim) == first, "the step that had it asks again"
    left = [stage.take(next_claim, f"x#{number}") for number in (2, 3, 4)]
    assert [each and each.payload for each in left] == ['"left"', '"after"', None]


def test_a_login_that_may_only_submit_signals_its_own_jobs(stage: Stage) -> None:
    foreign = stage.submit()
    with login_with(stage.dsn, SUBMITTER_ROLE) as dsn:
        (own,) = sql(dsn, "SELECT cortex.submit_job('work') AS id")
        profile = Profile(dsn=dsn, role=None)
        with open_session(profile) as session:
            with pytest.raises(NotFoundError, match=f"job {foreign} does not exist"):
                session(signals.send, "x", "1", job=foreign)
            session(signals.send, "x", "1", job=own["id"])
            session(signals.send, "x", "2", key="order-9")
        other = stage.running()
        assert stage.take(other, key="order-9") is None, "another login submitted that job"
        claim = stage.claim(own["id"])
        assert stage.take(claim) is not None
        assert stage.take(claim, "keyed", key="order-9") is not None
        sent = "SELECT DISTINCT sent_with FROM cortex.signal WHERE only_for IS NOT NULL"
        assert [row["sent_with"] for row in sql(stage.dsn, sent)] == [f"db:{name_of(dsn)}"]
        owner = "INSERT INTO cortex.login_tenant (login, tenant) VALUES ($1, 'acme')"
        sql(stage.dsn, owner, name_of(dsn))
        with open_session(profile) as session:
            with pytest.raises(ForbiddenError, match='a signal for tenant "other" may not be sent'):
                session(signals.send, "x", "1", key="k", tenant="other")
            with pytest.raises(NotFoundError, match="does not exist"):
                session(signals.send, "x", "1", job=own["id"])


def test_signals_to_a_key_are_kept_for_a_day_unless_a_job_waits(stage: Stage) -> None:
    old = "UPDATE cortex.signal SET sent_at = sent_at - interval '25 hours' WHERE key = $1"
    stage.send(key="late")
    stage.send(key="awaited")
    stage.send(key="new")
    stage.send(key="kept")
    stage.take(stage.running(), key="kept")
    lease = stage.running().lease
    waits = "INSERT INTO cortex.job_wait (job_id, kind, name, key) VALUES ($1, 'signal', 'x', $2)"
    sql(stage.dsn, waits, lease.job_id, "awaited")
    for key in ("late", "awaited", "kept"):
        sql(stage.dsn, old, key)
    assert stage.store(signals.forget, limit=100) == 1
    left = sql(stage.dsn, "SELECT key FROM cortex.signal WHERE key = ANY ($1)", ["late", "new"])
    assert [row["key"] for row in left] == ["new"]


def test_a_queue_that_nobody_empties_is_full(stage: Stage) -> None:
    claim = stage.running()
    fill = """
        INSERT INTO cortex.signal (id, tenant, name, job_id, lineage_id, payload, sent_with)
        SELECT cortex.uuid7(), 'default', 'x', $1, $1, '1', 'os:1' FROM generate_series(1, 9999)"""
    sql(stage.dsn, fill, claim.lease.job_id)
    stage.send(claim.lease.job_id)
    with pytest.raises(ConflictError, match="has 10000 signals that no job has received"):
        stage.send(claim.lease.job_id)
    stage.take(claim)
    stage.send(claim.lease.job_id)


def test_a_login_that_only_submits_fills_the_queue_of_a_key_for_itself_alone(stage: Stage) -> None:
    fill = """
        INSERT INTO cortex.signal (id, tenant, name, key, payload, sent_with, only_for)
        SELECT cortex.uuid7(), 'default', 'x', 'order-9', '1', 'db:web', 'db:web'
        FROM generate_series(1, 10000)"""
    sql(stage.dsn, fill)
    stage.send(key="order-9", payload='"paid"')
    taken = stage.take(stage.running(), key="order-9")
    assert taken is not None
    assert taken.payload == '"paid"'
