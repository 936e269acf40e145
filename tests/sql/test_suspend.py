"""Jobs between attempts: RETRY and waiting for a person, and what of it the record keeps."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    Lease,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
    Suspend,
)
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import configs, jobs, retries, steps, tasks
from tests.support.records.rows import (
    NoPause,
    assert_one_truth,
    attempts,
    history,
    job_row,
    move_clock,
    new_id,
)
from tests.support.servers.postgres import sql

Claims = Callable[..., list[Claim]]
FACT = json.dumps({"class": "TRANSIENT_APP", "message": "busy"})


def a_suspend(lease: Lease, **fields: Any) -> Suspend:
    defaults: dict[str, Any] = {
        "delay_s": 60.0,
        "is_counted": True,
        "error": "busy",
        "code": "overloaded",
        "error_class": "TRANSIENT_APP",
        "error_source": "llm:x",
        "fact": FACT,
    }
    return Suspend(lease=lease, **defaults | fields)


@attrs.frozen
class Running:
    """A job that runs on a pod."""

    pod_id: UUID
    lease: Lease


@pytest.fixture
def running(submit: Callable[..., UUID], claim: Claims) -> Running:
    submit()
    pod_id = new_id()
    (claimed,) = claim(pod_id)
    return Running(pod_id, claimed.lease)


def facts(dsn: str, job_id: UUID) -> list[dict[str, Any]]:
    return [dict(r) for r in sql(dsn, "SELECT * FROM cortex.fact WHERE job_id = $1", job_id)]


def let_go_on(dsn: str, job_id: UUID) -> None:
    """Give a suspended job a task, as resuming it does."""
    sql(
        dsn,
        """
        WITH made AS (
            INSERT INTO cortex_worker.task (
                job_id, task, state, attempt, attempts_spent, max_attempts)
            SELECT id, type, 'READY', attempt, attempts_kept, worker_attempts
            FROM cortex.job WHERE id = $1
            RETURNING job_id, id)
        UPDATE cortex.job_record j SET worker_job_id = made.id FROM made WHERE j.id = made.job_id
        """,
        job_id,
    )


def test_a_retry_is_counted_and_due_later(database: str, store: Session, running: Running) -> None:
    job_id = running.lease.job_id
    operation = a_suspend(running.lease, is_rate_limit=True)
    assert store(tasks.suspend, pod_id=running.pod_id, operations=[operation]) == {job_id}
    row = job_row(database, job_id)
    assert (row["status"], row["retry_count"], row["rate_limit_count"]) == ("RETRY", 1, 1)
    assert 58 < (row["next_retry_at"] - row["now"]).total_seconds() <= 60
    assert (row["task_state"], row["worker_job_id"], row["heartbeat_at"]) == (None, None, None)
    assert attempts(database, job_id) == [(1, "retry")]
    (fact,) = facts(database, job_id)
    assert (fact["type"], fact["subtype"], fact["source"]) == ("error", "overloaded", "llm:x")
    assert (fact["attempt"], fact["pod_id"], fact["data"]) == (1, running.pod_id, FACT)
    moved = "SELECT metadata FROM cortex.job_history WHERE job_id = $1 AND new = 'RETRY'"
    metadata = json.loads(sql(database, moved, job_id)[0]["metadata"])
    assert metadata["retry_count"] == 1
    assert metadata["next_retry_at"]
    assert_one_truth(database)


def test_waiting_for_a_breaker_uses_no_retry(
    database: str, store: Session, running: Running
) -> None:
    operation = a_suspend(running.lease, is_counted=False, waiting_on="llm:x", fact=None)
    store(tasks.suspend, pod_id=running.pod_id, operations=[operation])
    row = job_row(database, running.lease.job_id)
    assert (row["status"], row["retry_count"], row["waiting_on"]) == ("RETRY", 0, "llm:x")
    assert attempts(database, running.lease.job_id) == [(1, "suspended")]
    assert facts(database, running.lease.job_id) == []


def test_job_waiting_for_a_person_runs_again_when_released(
    database: str, store: Session, running: Running, claim: Claims
) -> None:
    job_id = running.lease.job_id
    operation = a_suspend(running.lease, delay_s=None, is_counted=False, waiting_on="budget:b")
    store(tasks.suspend, pod_id=running.pod_id, operations=[operation])
    row = job_row(database, job_id)
    assert (row["status"], row["waiting_on"]) == ("WAITING_FOR_APPROVAL", "budget:b")
    let_go_on(database, job_id)
    (again,) = claim(new_id())
    assert again.lease == Lease(job_id, 2)
    row = job_row(database, job_id)
    assert (row["status"], row["waiting_on"]) == ("RUNNING", None)
    assert_one_truth(database)


def test_only_the_owner_can_suspend_a_job_once(
    database: str, store: Session, running: Running
) -> None:
    for pod_id, attempt in ((new_id(), 1), (running.pod_id, 0), (running.pod_id, 2)):
        operation = a_suspend(attrs.evolve(running.lease, attempt=attempt))
        assert store(tasks.suspend, pod_id=pod_id, operations=[operation]) == set()
    operation = a_suspend(running.lease)
    assert store(tasks.suspend, pod_id=running.pod_id, operations=[operation])
    assert store(tasks.suspend, pod_id=running.pod_id, operations=[operation]) == set()
    assert job_row(database, running.lease.job_id)["retry_count"] == 1
    assert len(facts(database, running.lease.job_id)) == 1


def test_cancel_requested_job_ends_instead_of_suspending(
    database: str, store: Session, running: Running
) -> None:
    job_id = running.lease.job_id
    store(jobs.cancel, job_id, by="ana", reason="enough")
    store(tasks.suspend, pod_id=running.pod_id, operations=[a_suspend(running.lease)])
    row = job_row(database, job_id)
    assert (row["status"], row["retry_count"], row["cancelled_by"]) == ("CANCELLED", 0, "ana")
    assert attempts(database, job_id) == []
    assert_one_truth(database)


@pytest.mark.parametrize("delay_s", [60.0, None])
def test_a_suspended_job_can_be_cancelled(
    database: str, store: Session, running: Running, delay_s: float | None
) -> None:
    operation = a_suspend(running.lease, delay_s=delay_s, waiting_on="budget:b")
    store(tasks.suspend, pod_id=running.pod_id, operations=[operation])
    store(jobs.cancel, running.lease.job_id, by="ana", reason="")
    row = job_row(database, running.lease.job_id)
    assert (row["status"], row["waiting_on"], row["next_retry_at"]) == ("CANCELLED", None, None)
    assert_one_truth(database)


def test_time_between_attempts_is_not_the_jobs(
    database: str, store: Session, submit: Callable[..., UUID], claim: Claims
) -> None:
    """Its own limit counts the time that a pod had it, on whichever pod."""
    job_id, pod_id = submit(timeout_s=100), new_id()
    (first,) = claim(pod_id)
    assert 99 < first.left_s <= 100
    move_clock(database, 30)
    store(tasks.suspend, pod_id=pod_id, operations=[a_suspend(first.lease)])
    move_clock(database, 3_630)
    let_go_on(database, job_id)
    (second,) = claim(pod_id)
    assert 68 < second.left_s <= 70
    move_clock(database, 3_650)
    release = Release(lease=second.lease, outcome="failed", delay_s=1000.0, error="x", code="y")
    store(tasks.release, pod_id=pod_id, operations=[release])
    move_clock(database, 5_650)
    (third,) = claim(new_id())
    assert 48 < third.left_s <= 50
    move_clock(database, 5_750)
    store(tasks.sweep, silent_s=50.0, limit=10, rng=NoPause())
    assert store(retries.due).count == 1
    (fourth,) = claim(new_id())
    assert 48 < fourth.left_s <= 50, "since its last heartbeat it may not have run"


def test_job_keeps_its_first_configuration(
    database: str, store: Session, submit: Callable[..., UUID]
) -> None:
    first, second = store(configs.ensure, {"a": 1}), store(configs.ensure, {"a": 2})
    assert first != second
    assert store(configs.ensure, {"a": 1}) == first
    submit()
    pod_id = new_id()
    (begun,) = store(tasks.claim, pod_id=pod_id, types=["work"], limit=1, config_id=first)
    assert begun.config_id == first
    release = Release(lease=begun.lease, outcome="failed")
    store(tasks.release, pod_id=pod_id, operations=[release])
    (again,) = store(tasks.claim, pod_id=pod_id, types=["work"], limit=1, config_id=second)
    assert again.config_id == first
    assert store(configs.spec, first) == {"a": 1}


def test_failure_is_recorded_with_its_class_source_and_data(
    database: str, store: Session, running: Running
) -> None:
    finish = Finish(
        lease=running.lease,
        status=JobStatus.FAILED,
        error="no such model",
        code="not_found",
        error_class="PERMANENT",
        error_source="llm:x",
        fact=FACT,
    )
    store(jobs.finish, pod_id=running.pod_id, operations=[finish])
    row = job_row(database, running.lease.job_id)
    assert (row["error_class"], row["error_source"]) == ("PERMANENT", "llm:x")
    (fact,) = facts(database, running.lease.job_id)
    assert (fact["subtype"], fact["source"], fact["data"]) == ("not_found", "llm:x", FACT)
    assert history(database, running.lease.job_id)[-1] == ("RUNNING", "FAILED", 1)


def test_many_suspensions_in_one_statement_are_all_recorded(
    database: str, store: Session, submit: Callable[..., UUID], claim: Claims
) -> None:
    ids = {submit() for _ in range(60)}
    pod_id = new_id()
    operations = [a_suspend(each.lease) for each in claim(pod_id)]
    assert store(tasks.suspend, pod_id=pod_id, operations=operations) == ids
    assert_one_truth(database)


def test_waiting_keeps_the_worker_attempts_and_counts_itself(
    database: str, store: Session, submit: Callable[..., UUID], claim: Claims
) -> None:
    job_id, pod_id = submit(), new_id()
    (first,) = claim(pod_id)
    store(tasks.release, pod_id=pod_id, operations=[Release(lease=first.lease, outcome="failed")])
    for number in (1, 2):
        (again,) = claim(pod_id)
        assert (again.attempts_spent, again.waits_count) == (2, number - 1)
        waits = a_suspend(again.lease, is_counted=False, waiting_on="llm:x")
        store(tasks.suspend, pod_id=pod_id, operations=[waits])
        row = job_row(database, job_id)
        assert (row["attempts_kept"], row["waits_count"]) == (1, number)
        let_go_on(database, job_id)
    (again,) = claim(pod_id)
    store(tasks.suspend, pod_id=pod_id, operations=[a_suspend(again.lease)])
    row = job_row(database, job_id)
    assert (row["attempts_kept"], row["waits_count"], row["retry_count"]) == (0, 0, 1)


def test_answers_that_break_in_a_row_are_counted(
    database: str, store: Session, submit: Callable[..., UUID], claim: Claims
) -> None:
    job_id, pod_id = submit(), new_id()
    broken = {"is_own_failure": True, "is_broken_answer": True}
    waits: list[tuple[dict[str, bool], int]] = [
        (broken, 1),
        ({}, 1),  # turned away by the breaker
        (broken, 2),
        ({**broken, "is_counted": True}, 3),
        ({"is_own_failure": True}, 0),
        (broken, 1),
    ]
    before = 0
    for flags, count in waits:
        (again,) = claim(pod_id)
        assert again.broken_answers == before
        wait = a_suspend(again.lease, waiting_on="llm:x", **{"is_counted": False, **flags})
        store(tasks.suspend, pod_id=pod_id, operations=[wait])
        assert job_row(database, job_id)["broken_answers"] == count
        before = count
        let_go_on(database, job_id)
    sql(database, "UPDATE cortex.job_record SET own_failure_at = NULL")  # as after a step
    (again,) = claim(pod_id)
    wait = a_suspend(again.lease, waiting_on="llm:x", is_counted=False, **broken)
    store(tasks.suspend, pod_id=pod_id, operations=[wait])
    assert job_row(database, job_id)["broken_answers"] == 1


@pytest.mark.parametrize("end", ["runs", "completed", "failed", "expired"])
def test_a_step_ends_the_rows_of_waits_and_deaths_for_good(
    database: str, store: Session, running: Running, claim: Claims, end: str
) -> None:
    job_id, pod_id = running.lease.job_id, running.pod_id
    waits = a_suspend(running.lease, is_counted=False, waiting_on="llm:x", is_own_failure=True)
    store(tasks.suspend, pod_id=pod_id, operations=[waits])
    sql(database, "UPDATE cortex.job_record SET pod_deaths = 1, process_deaths = 1")
    let_go_on(database, job_id)
    (again,) = claim(pod_id)
    done = StepDone(
        lease=again.lease,
        kind=StepKind.STEP,
        key="a",
        digest=b"digest",
        duration_s=0.1,
        output="1",
        ended_at=0.0,
        tally=Tally(()),
    )
    step = NumberedStep(done, 1, '{"seq": 1}')
    assert store(steps.commit, pod_id=pod_id, operations=[step])
    if end in ("completed", "failed"):
        error = "broken" if end == "failed" else None
        ending = Finish(lease=again.lease, status=JobStatus(end.upper()), error=error)
        assert store(jobs.finish, pod_id=pod_id, operations=[ending]) == {job_id}
    elif end == "expired":
        sql(database, "UPDATE cortex.job_record SET timeout_s = 1")
        move_clock(database, 100.0)
        sql(database, "UPDATE cortex_worker.task SET heartbeat_at = cortex.now()")
        assert store(tasks.expire, limit=1, every_s=0.0) == 1
    row = job_row(database, job_id)
    assert (row["waits_count"], row["own_failure_at"]) == (0, None)
    assert (row["pod_deaths"], row["process_deaths"]) == (0, 0)


@pytest.mark.parametrize("delay_s", [60.0, None])
def test_a_new_job_replaces_one_that_waits_under_its_key(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Claims,
    delay_s: float | None,
) -> None:
    job_id, pod_id = submit(job_key="k"), new_id()
    (first,) = claim(pod_id)
    waiting_on = "person:mend it" if delay_s is None else None
    suspend = a_suspend(first.lease, delay_s=delay_s, waiting_on=waiting_on)
    store(tasks.suspend, pod_id=pod_id, operations=[suspend])
    successor = submit(job_key="k")
    row = job_row(database, job_id)
    assert (row["status"], row["cancelled_by"]) == ("CANCELLED", "submit")
    assert str(successor) in row["cancel_reason"]
    assert [each.lease.job_id for each in claim(pod_id)] == [successor]
    assert_one_truth(database)
