"""Singleton, debounce and throttle: what a submit leads to, whichever way it comes."""

import json
import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.dead_letter import PayloadEdit
from cortex.domain.errors import ConflictError, InvalidValueError, RejectedError, UsageError
from cortex.domain.job import Submission
from cortex.domain.queueing.submit_rules import (
    Debounce,
    OnConflict,
    Singleton,
    SubmitRule,
    Throttle,
)
from cortex.durable.registry import job
from cortex.store import dead_letters, idempotency, jobs, why
from cortex.view.why import why as explained
from cortex.view.why_brief import brief
from tests.support.life import Life
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.records.rows import submit as submit_by_sql
from tests.support.servers.postgres import sql

TYPE = "reindex"
POD = "pod-1"


@pytest.fixture
def ruled(clean: Life) -> Life:
    """A database whose job type has no jobs yet."""
    clean.type(TYPE)
    return clean


def declare(life: Life, rule: SubmitRule | None) -> None:
    life.call(jobs.ensure_rules, {TYPE: rule})


def submit(life: Life, customer: object = 7, **named: Any) -> UUID:
    """Submit as any program would; returns the job that the submit stands for."""
    return submit_by_sql(life.dsn, TYPE, {"customer": customer}, **named)


def waiting(life: Life) -> set[UUID]:
    rows = sql(life.dsn, "SELECT job_id FROM cortex_worker.task WHERE state <> 'LOCKED'")
    return {row["job_id"] for row in rows}


def now_of(life: Life) -> datetime:
    now: datetime = sql(life.dsn, "SELECT cortex.now() AS now")[0]["now"]
    return now


def end(life: Life, job_id: UUID) -> None:
    pod = life.pod(POD, TYPE)
    (claim,) = life.claims(pod, TYPE)
    assert claim.lease.job_id == job_id
    life.finish(pod, claim)


def test_a_singleton_names_the_job_that_waits_or_runs(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    first = submit(ruled)
    assert submit(ruled) == first
    assert submit(ruled, tenant="acme") != first, "another tenant has keys of its own"
    assert submit(ruled, customer="7") != first, "text is not the number"
    sql(ruled.dsn, "DELETE FROM cortex_worker.task WHERE job_id <> $1", first)
    pod = ruled.pod(POD, TYPE)
    (claim,) = ruled.claims(pod, TYPE)
    assert submit(ruled) == first, "it runs"
    ruled.finish(pod, claim)
    assert submit(ruled) != first, "it has ended"


def test_two_submits_at_once_make_one_singleton(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    barrier = threading.Barrier(8)
    made: list[UUID] = []

    def race() -> None:
        barrier.wait(10)
        made.append(submit(ruled))

    racers = [threading.Thread(target=race) for _ in range(8)]
    for each in racers:
        each.start()
    for each in racers:
        each.join(20)
    assert len(made) == 8
    assert set(made) == waiting(ruled)
    assert len(set(made)) == 1


def test_a_submit_that_rolls_back_leaves_no_singleton(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    with pytest.raises(asyncpg.DivisionByZeroError):
        sql(
            ruled.dsn,
            "SELECT cortex.submit_job('reindex', '{\"customer\": 7}'), 1 / (id - id)"
            " FROM generate_series(1, 1) AS id",
        )
    assert waiting(ruled) == set()
    assert {submit(ruled)} == waiting(ruled)


def test_a_refusing_singleton_names_the_job_that_has_not_ended(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}", when="refuse"))
    first = submit(ruled)
    batch = [Submission(id=new_id(), type=TYPE, payload='{"customer": 7}')]
    with pytest.raises(ConflictError, match=f'job {first} of singleton "7" of job type "{TYPE}"'):
        ruled.call(jobs.submit, batch)
    assert waiting(ruled) == {first}


def test_a_replacing_singleton_keeps_the_newest(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}", when=OnConflict.REPLACE))
    ids = [submit(ruled) for _ in range(3)]
    assert waiting(ruled) == {ids[-1]}
    assert [job_row(ruled.dsn, each)["status"] for each in ids] == [
        "CANCELLED",
        "CANCELLED",
        "PENDING",
    ]
    reason = job_row(ruled.dsn, ids[1])["cancel_reason"]
    assert reason == f"replaced by job {ids[2]} with the same singleton key '7'"


def test_why_names_the_singleton_and_not_its_queue(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}", when="queue"))
    first, second = submit(ruled), submit(ruled)
    ruled.claims(ruled.pod(POD, TYPE), TYPE)
    facts = ruled.call(why.facts_of, second)
    words = f"jobs of its singleton key run one after another, and job {first} is running"
    assert explained(facts).sentence.startswith(words)
    assert brief(facts) == f"behind job …{str(first)[-6:]} of its singleton key"


@pytest.mark.parametrize("when", ["queue", "replace"])
def test_two_singletons_never_run_at_once(ruled: Life, when: str) -> None:
    declare(ruled, Singleton("{customer}", when=when))
    pod = ruled.pod(POD, TYPE)
    first = submit(ruled)
    (claim,) = ruled.claims(pod, TYPE)
    second = submit(ruled)
    assert ruled.claims(pod, TYPE) == [], "the first one runs"
    assert job_row(ruled.dsn, first)["status"] == "RUNNING"
    ruled.finish(pod, claim)
    assert [each.lease.job_id for each in ruled.claims(pod, TYPE)] == [second]


def test_a_retried_singleton_runs_beside_no_other(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    pod = ruled.pod(POD, TYPE)
    failed = submit(ruled)
    (claim,) = ruled.claims(pod, TYPE)
    ruled.finish(pod, claim, error="no such page")
    second = submit(ruled)
    assert second != failed
    (retried,) = retry(ruled, failed)
    (claim,) = ruled.claims(pod, TYPE)
    assert ruled.claims(pod, TYPE) == [], "the other one runs"
    ruled.finish(pod, claim)
    (other,) = ruled.claims(pod, TYPE)
    assert {claim.lease.job_id, other.lease.job_id} == {second, retried}
    ruled.finish(pod, other)


def test_a_submit_names_the_job_that_continues_a_failed_one(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    pod = ruled.pod(POD, TYPE)
    failed = submit(ruled)
    (claim,) = ruled.claims(pod, TYPE)
    ruled.finish(pod, claim, error="no such page")
    (retried,) = retry(ruled, failed)
    assert submit(ruled) == retried


def retry(life: Life, job_id: UUID, payload: dict[str, Any] | None = None) -> list[UUID]:
    edit = None if payload is None else PayloadEdit.of(TYPE, {}, json.dumps(payload))
    wanted = dead_letters.resubmissions([job_id], new_id=new_id, rate=1_000, edit=edit)
    done = life.call(
        dead_letters.resubmit, wanted, by="ana", credential="db:ana", reason="x", from_start=False
    )
    return [each.retried_as for each in done if each.retried_as is not None]


def test_a_singleton_that_takes_turns_refuses_another_queue(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}", when="queue"))
    with pytest.raises(asyncpg.CheckViolationError, match="take turns"):
        submit(ruled, queue_name="mine")


def test_a_repeated_submit_stays_merged_after_the_job_has_ended(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    first = submit(ruled)
    again = Submission(id=new_id(), type=TYPE, payload='{"customer": 7}')
    assert ruled.call(jobs.submit, [again]).existing == {again.id: first}
    end(ruled, first)
    assert ruled.call(jobs.submit, [again]).existing == {again.id: first}
    assert waiting(ruled) == set()
    key = {"idempotency_key": f"k-{first}"}
    fresh = submit(ruled)
    assert [submit(ruled, **key), submit(ruled, **key)] == [fresh, fresh]


def test_a_debounce_makes_one_job_with_the_last_arguments(ruled: Life) -> None:
    declare(ruled, Debounce("30s", key="{customer}"))
    first = submit_by_sql(ruled.dsn, TYPE, {"customer": 7, "page": 1})
    move_clock(ruled.dsn, 20)
    assert submit_by_sql(ruled.dsn, TYPE, {"customer": 7, "page": 2}) == first
    row = job_row(ruled.dsn, first)
    assert json.loads(row["payload"])["page"] == 2
    assert 29 <= (row["run_at"] - row["now"]).total_seconds() <= 30
    assert row["task_run_at"] == row["run_at"]
    assert row["task_state"] == "LATER"


def test_a_debounce_cannot_be_pushed_for_ever(ruled: Life) -> None:
    declare(ruled, Debounce("30s", longest="60s"))
    first = submit(ruled)
    start = job_row(ruled.dsn, first)["created_at"]
    for ahead_s in (25, 50, 59):
        move_clock(ruled.dsn, ahead_s)
        assert submit(ruled) == first
    row = job_row(ruled.dsn, first)
    assert (row["run_at"] - start).total_seconds() == 60
    move_clock(ruled.dsn, 61)
    assert submit(ruled) == first, "it is due, and has not started"
    pod = ruled.pod(POD, TYPE)
    assert [each.lease.job_id for each in ruled.claims(pod, TYPE)] == [first]


def test_a_debounced_job_that_has_started_is_left_alone(ruled: Life) -> None:
    declare(ruled, Debounce("1s"))
    first = submit(ruled, customer=1)
    move_clock(ruled.dsn, 2)
    pod = ruled.pod(POD, TYPE)
    (claim,) = ruled.claims(pod, TYPE)
    second = submit(ruled, customer=2)
    assert second != first
    assert json.loads(job_row(ruled.dsn, first)["payload"]) == {"customer": 1}
    ruled.finish(pod, claim)


def test_a_repeated_debounced_submit_does_not_bring_old_arguments_back(ruled: Life) -> None:
    declare(ruled, Debounce("30s"))
    old = Submission(id=new_id(), type=TYPE, payload='{"customer": 1}')
    assert ruled.call(jobs.submit, [old]).new == {old.id}
    submit(ruled, customer=2)
    assert ruled.call(jobs.submit, [old]).new == set()
    assert json.loads(job_row(ruled.dsn, old.id)["payload"]) == {"customer": 2}


def test_a_throttle_makes_one_job_per_period(ruled: Life) -> None:
    declare(ruled, Throttle("1m", key="{customer}"))
    first = submit(ruled)
    end(ruled, first)
    assert submit(ruled) == first, "its period is not over"
    assert submit(ruled, customer=8) != first
    move_clock(ruled.dsn, 61)
    assert submit(ruled) != first


@pytest.mark.parametrize(
    "rule",
    [Singleton("{customer}"), Debounce("30s", key="{customer}"), Throttle("30s", key="{customer}")],
    ids=["singleton", "debounce", "throttle"],
)
def test_a_batch_of_thousands_keeps_one_job_per_key(ruled: Life, rule: SubmitRule) -> None:
    declare(ruled, rule)
    batch = [
        Submission(id=new_id(), type=TYPE, payload=json.dumps({"customer": n % 20, "n": n}))
        for n in range(1000)
    ]
    done = ruled.call(jobs.submit_all, batch)
    assert len(done.new) == 20
    assert {done.job_of(each.id) for each in batch} == done.new == waiting(ruled)
    if isinstance(rule, Debounce):
        newest = {json.loads(job_row(ruled.dsn, each)["payload"])["n"] for each in done.new}
        assert newest == set(range(980, 1000))


def test_housekeeping_forgets_keys_of_ended_jobs_alone(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}", when="queue"))
    submit(ruled, customer=1)
    pod = ruled.pod(POD, TYPE)
    (claim,) = ruled.claims(pod, TYPE)
    ruled.finish(pod, claim)
    submit(ruled, customer=2)
    move_clock(ruled.dsn, 3601)
    for _ in range(2):
        ruled.call(idempotency.sweep_rules, limit=10)
    assert [row["key"] for row in sql(ruled.dsn, "SELECT key FROM cortex.submit_key")] == ["2"]
    strict = "SELECT FROM cortex_worker.strict_queue WHERE set_by = 'singleton'"
    assert len(sql(ruled.dsn, strict)) == 1


def test_a_type_that_drops_its_rule_submits_as_any_other(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    first = submit(ruled)
    declare(ruled, None)
    assert submit(ruled) != first


def test_a_payload_without_the_key_is_refused(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    with pytest.raises(RejectedError, match=f'job type "{TYPE}" is a singleton by {{customer}}'):
        ruled.call(jobs.submit, [Submission(id=new_id(), type=TYPE, payload='{"page": 1}')])


@pytest.mark.parametrize(
    "given, message",
    [
        ({"singleton": "{order}"}, "singleton '{order}' names 'order', no argument of it"),
        ({"singleton": "{customer"}, "has a brace without its pair"),
        ({"singleton": "x" * 201}, "is not printable text of at most 200"),
        ({"singleton": "\0{customer}"}, r"singleton: key '\x00{customer}' is not printable text"),
        ({"debounce": "5 fortnights"}, "debounce: '5 fortnights' is not a time"),
        ({"debounce": -1}, "debounce: -1 is not a time from 1s to 30d"),
        ({"throttle": float("nan")}, "throttle: nan is not a time"),
        ({"throttle": True}, "throttle: True is not a time"),
        ({"throttle": "31d"}, "throttle: '31d' is not a time from 1s to 30d"),
        ({"debounce": "5s", "throttle": "5s"}, "debounce and throttle exclude each other"),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_declared(given: dict[str, Any], message: str) -> None:
    async def reindex(_ctx: Any, customer: int) -> None: ...

    with pytest.raises(UsageError) as error:
        job(**given)(reindex)
    assert message in error.value.message
    assert error.value.message.startswith("job type 'reindex': ")


def test_when_and_longest_are_checked() -> None:
    with pytest.raises(UsageError, match="when 'skip' is none of return, replace, queue, refuse"):
        Singleton("{customer}", when="skip")
    with pytest.raises(UsageError, match="longest 5 s is less than the period 30 s"):
        Debounce("30s", longest="5s")


def test_the_earliest_deadline_runs_first_within_a_priority(ruled: Life) -> None:
    now = now_of(ruled)
    plain = submit(ruled)
    late = submit(ruled, due_by=now + timedelta(hours=2))
    soon = submit(ruled, due_by=now + timedelta(hours=1))
    urgent = submit(ruled, priority=-1)
    pod = ruled.pod(POD, TYPE)
    order = [each.lease.job_id for _ in range(5) for each in ruled.claims(pod, TYPE, limit=1)]
    assert order == [urgent, soon, late, plain]


def test_the_earliest_deadline_runs_first_in_a_named_queue(ruled: Life) -> None:
    now = now_of(ruled)
    jobs_of = {
        name: submit(ruled, queue_name="q", **named)
        for name, named in {
            "plain": {},
            "late": {"due_by": now + timedelta(hours=2)},
            "soon": {"due_by": now + timedelta(hours=1)},
        }.items()
    }
    pod = ruled.pod(POD, TYPE)
    order = []
    for _ in range(3):
        (claim,) = ruled.claims(pod, TYPE)
        order.append(claim.lease.job_id)
        ruled.finish(pod, claim)
    assert order == [jobs_of["soon"], jobs_of["late"], jobs_of["plain"]]


@pytest.mark.parametrize(
    "due_by, message",
    [
        (timedelta(seconds=-1), "is in the past"),
        (timedelta(days=3651), "is more than ten years away"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused(
    ruled: Life, due_by: timedelta, message: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=message):
        submit(ruled, due_by=now_of(ruled) + due_by)


def test_a_job_of_a_type_with_a_rule_is_no_child(ruled: Life) -> None:
    check = "SELECT cortex.check_children($1::jsonb, ARRAY['{}'::jsonb])"
    sql(ruled.dsn, check, json.dumps({"type": TYPE}))
    declare(ruled, Throttle("30s"))
    with pytest.raises(asyncpg.CheckViolationError, match="its jobs cannot be children"):
        sql(ruled.dsn, check, json.dumps({"type": TYPE}))


def test_a_singleton_retried_with_other_arguments_takes_turns_by_these(ruled: Life) -> None:
    declare(ruled, Singleton("{customer}"))
    pod = ruled.pod(POD, TYPE)
    failed = submit(ruled)
    (claim,) = ruled.claims(pod, TYPE)
    ruled.finish(pod, claim, error="no such page")
    (other,) = retry(ruled, failed, {"customer": 8})
    assert submit(ruled, customer=8) == other
    seven = submit(ruled)
    both = ruled.claims(pod, TYPE)
    assert {each.lease.job_id for each in both} == {other, seven}
    for each in both:
        ruled.finish(pod, each, error="no such page")
    (again,) = retry(ruled, other, {"customer": 7})
    beside = retry(ruled, seven)
    assert len(ruled.claims(pod, TYPE)) == 1, f"{again} and {beside} have one key"
    with pytest.raises(InvalidValueError, match='its payload has no "customer"'):
        retry(ruled, failed, {"page": 7})
