"""Ways around limits of job types: each was, or could be, one."""

import json
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.dead_letter import PayloadEdit
from cortex.domain.errors import InvalidValueError
from cortex.domain.job import Claim, Finish, JobStatus
from cortex.domain.job_limits import Concurrency, Rate
from cortex.domain.queueing.pauses import Pausable
from cortex.domain.queueing.submit_rules import Debounce
from cortex.store import dead_letters, jobs, pauses, retries, tasks
from tests.limits.conftest import TYPE, Stage
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import sql

TENANT_PAUSE = Pausable.parse("tenant:acme")
WHO = {"by": "ana", "reason": "a test"}
ANA, LI = {"customer": "ana"}, {"customer": "li"}


def take(stage: Stage) -> list[Claim]:
    """Claim without letting more through."""
    return stage.call(tasks.claim, pod_id=stage.pod_id, types=[TYPE], limit=500)


def fail(stage: Stage, claim: Claim) -> UUID:
    end = Finish(lease=claim.lease, status=JobStatus.FAILED, error="no such page")
    stage.call(jobs.finish, pod_id=stage.pod_id, operations=[end])
    return claim.lease.job_id


def retry(stage: Stage, job_id: UUID, payload: dict[str, Any]) -> UUID:
    edit = PayloadEdit.of(TYPE, ANA, json.dumps(payload))
    wanted = dead_letters.resubmissions([job_id], new_id=new_id, rate=1_000, edit=edit)
    (done,) = stage.call(dead_letters.resubmit, wanted, by="ana", reason="x")
    assert done.retried_as is not None
    return done.retried_as


def test_jobs_that_no_pod_took_meanwhile_do_not_begin_beyond_the_rate(stage: Stage) -> None:
    stage.declare(Rate(2, per="minute"))
    stage.submit_many(8, {})
    for minutes in range(3):
        move_clock(stage.dsn, 90 * minutes)
        stage.admit_all()
    assert len(take(stage)) == 2, "what waits for a pod has its place until it begins"
    assert stage.admit_all() == 0
    move_clock(stage.dsn, 180 + 62)
    assert stage.admit_all() == 2


def test_pass_looks_again_when_jobs_that_begin_now_no_longer_count(stage: Stage) -> None:
    stage.declare(Rate(2, per="minute"))
    stage.submit_many(3, {})
    stage.admit()
    due_in_s = stage.admit().due_in_s
    assert due_in_s is not None
    assert 60 <= due_in_s <= 62


def test_cancelled_job_that_has_not_begun_gives_its_place_in_a_rate_back(stage: Stage) -> None:
    stage.declare(Rate(1, per="day"))
    first = stage.submit()
    stage.admit_all()
    second = stage.submit()
    stage.call(jobs.cancel, first, by="ana", reason="a test")
    assert [each.lease.job_id for each in stage.claim()] == [second]


def test_new_key_of_a_rate_counts_what_is_yet_to_begin(stage: Stage) -> None:
    stage.declare(Rate(1, per="day"))
    stage.submit_many(3, ANA)
    stage.admit_all()
    stage.declare(Rate(1, per="day", key="customer"))
    assert len(stage.claim()) == 1
    assert stage.claim() == []


def test_debounced_job_that_was_let_through_is_counted_by_its_new_key(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="customer"))
    stage.call(jobs.ensure_rules, {TYPE: Debounce("1s", longest="1s")})
    first = stage.submit(LI)
    move_clock(stage.dsn, 2)
    stage.call(tasks.promote)
    stage.call(jobs.ensure_rules, {TYPE: None})
    stage.submit(ANA)
    assert stage.admit_all() == 2
    stage.call(jobs.ensure_rules, {TYPE: Debounce("1s", longest="1s")})
    moved = sql(stage.dsn, "SELECT cortex.submit_job($1, $2) AS id", TYPE, json.dumps(ANA))[0]["id"]
    assert moved == first
    (claim,) = stage.claim()
    assert stage.holds() == {"ana": 1}
    stage.finish(claim)
    assert [each.lease.job_id for each in stage.claim()] == [first]


def test_debounced_job_of_a_paused_tenant_gets_the_newest_arguments(stage: Stage) -> None:
    stage.declare(Concurrency(1, key="customer"))
    stage.call(jobs.ensure_rules, {TYPE: Debounce("1s")})
    first = stage.submit(LI, tenant="acme")
    move_clock(stage.dsn, 2)
    stage.call(tasks.promote)
    stage.admit_all()
    stage.call(pauses.pause, TENANT_PAUSE, **WHO)
    stage.call(pauses.park)
    assert stage.states() == {"PAUSED": 1}
    call = "SELECT cortex.submit_job($1, $2, tenant => 'acme') AS id"
    assert sql(stage.dsn, call, TYPE, json.dumps(ANA))[0]["id"] == first
    move_clock(stage.dsn, 4)
    assert stage.claim() == []
    stage.call(pauses.resume, TENANT_PAUSE, by="ben")
    (claim,) = stage.claim()
    assert (claim.lease.job_id, json.loads(claim.payload)) == (first, ANA)


@pytest.mark.parametrize("payload", [{}, {"customer": None}, {"customer": ["ana"]}])
def test_retry_with_a_payload_that_lacks_the_key_is_refused(
    stage: Stage, payload: dict[str, Any]
) -> None:
    stage.declare(Concurrency(1, key="customer"))
    stage.submit(ANA)
    failed = fail(stage, *stage.claim())
    with pytest.raises(InvalidValueError, match=r"payload\.customer of job type"):
        retry(stage, failed, payload)
    again = retry(stage, failed, LI)
    assert [each.lease.job_id for each in stage.claim()] == [again]
    assert stage.holds() == {"li": 1}


def test_task_whose_limits_are_removed_while_it_is_submitted_is_not_held_for_ever(
    stage: Stage,
) -> None:
    job_id = stage.submit()
    sql(stage.dsn, "DELETE FROM cortex_worker.task")
    # As insert_jobs does if the limits go between its two statements.
    sql(
        stage.dsn,
        "INSERT INTO cortex_worker.task (id, task, job_id, state, is_admitted, max_attempts)"
        " SELECT worker_job_id, type, id, 'HELD', false, 3 FROM cortex.job_record WHERE id = $1",
        job_id,
    )
    assert [each.lease.job_id for each in stage.claim()] == [job_id]


def test_paused_job_that_code_handed_back_is_retried_by_a_person(stage: Stage) -> None:
    stage.submit(tenant="acme")
    (claim,) = stage.claim()
    stage.release(claim)
    stage.call(pauses.pause, TENANT_PAUSE, **WHO)
    stage.call(pauses.park)
    sql(
        stage.dsn,
        "UPDATE cortex.job_record SET unfit_codes = '{0}', waiting_on = 'code', status = 'RETRY',"
        " next_retry_at = cortex.now() + interval '1 hour'",
    )
    assert stage.states() == {"PAUSED": 1}
    stage.call(retries.retry_now, claim.lease.job_id, new_id=new_id, **WHO)
    assert stage.claim() == []
    stage.call(pauses.resume, TENANT_PAUSE, by="ben")
    assert len(stage.claim()) == 1


def test_line_of_a_paused_tenant_does_not_hold_those_behind_it(stage: Stage) -> None:
    stage.declare(Concurrency(5))
    stage.submit_many(300, {}, tenant="acme", priority=-1)
    stage.call(pauses.pause, TENANT_PAUSE, **WHO)
    other = stage.submit(tenant="zoo")
    assert stage.admit().due_in_s == 0, "there may be more of them"
    assert [each.lease.job_id for each in stage.claim()] == [other]
    assert stage.states() == {"LOCKED": 1, "PAUSED": 300}
    stage.call(pauses.resume, TENANT_PAUSE, by="ben")
    assert stage.states() == {"LOCKED": 1, "HELD": 300}
    assert len(stage.claim()) == 4


@pytest.mark.parametrize("queue", [None, "mail"])
def test_paused_queue_takes_no_place_from_others(stage: Stage, queue: str | None) -> None:
    stage.declare(Concurrency(1))
    first = stage.submit(queue_name=queue)
    stage.call(tasks.promote)
    assert stage.admit_all() == 1
    pause = Pausable.parse(f"queue:{queue or 'default'}")
    stage.call(pauses.pause, pause, **WHO)
    assert stage.holds() == {}, "it gives back what it had"
    other = stage.submit(queue_name="other")
    stage.submit(queue_name=queue)
    (claim,) = stage.claim()
    assert claim.lease.job_id == other
    stage.finish(claim)
    assert stage.claim() == []
    stage.call(pauses.resume, pause, by="ben")
    assert [each.lease.job_id for each in stage.claim()] == [first]


def test_jobs_of_a_paused_queue_do_not_hold_those_behind_them(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    stage.call(pauses.pause, Pausable.parse("queue:default"), **WHO)
    stage.submit_many(300, {}, priority=-1)
    other = stage.submit(queue_name="other")
    assert stage.claim() == []
    assert [each.lease.job_id for each in stage.claim()] == [other]
    stage.call(pauses.resume, Pausable.parse("queue:default"), by="ben")
    assert stage.states() == {"LOCKED": 1, "HELD": 300}


def test_job_that_waits_in_its_queue_again_keeps_no_place(stage: Stage) -> None:
    stage.declare(Concurrency(1))
    first = stage.submit(queue_name="q")
    (claimed,) = stage.claim()
    stage.submit(queue_name="q")
    stage.release(claimed, outcome="failed", delay_s=60.0, is_counted=True)
    (second,) = stage.claim()  # else it would wait for the place of one behind it for ever
    move_clock(stage.dsn, 100)
    stage.finish(second)
    (again,) = stage.claim()
    assert again.lease.job_id == first
    stage.declare()
    stage.release(again, is_counted=False)
    assert [each.lease.job_id for each in stage.claim()] == [first], "it has no limit by now"
