"""A scrape's view of the whole system, from rows of every state."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.job import Claim, Finish, JobStatus, Release, Suspend
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.session import Session
from cortex.store import jobs, pauses, pulse, tasks
from tests.support.records.dead_letters import fail
from tests.support.records.rows import move_clock, stop_clock
from tests.support.servers.postgres import sql

Submit = Callable[..., UUID]
Run = Callable[..., Claim]


def test_empty_database_has_zero_figures(store: Session) -> None:
    found = store(pulse.figures)
    assert set(found.jobs.values()) == set(found.letters.values()) == {0}
    assert (found.due_count, found.oldest_due_s) == (0, 0)


def test_each_state_is_counted_and_the_finished_are_not(
    store: Session, submit: Submit, running: Run, pod_id: UUID, database: str
) -> None:
    done, later, asks, _ = (running() for _ in range(4))
    completed = Finish(lease=done.lease, status=JobStatus.COMPLETED, result="1")
    assert store(jobs.finish, pod_id=pod_id, operations=[completed])
    waits = Suspend(lease=later.lease, delay_s=60.0, is_counted=False, waiting_on="llm:m")
    person = Suspend(lease=asks.lease, delay_s=None, is_counted=False, waiting_on="person:m")
    assert len(store(tasks.suspend, pod_id=pod_id, operations=[waits, person])) == 2
    fail(database, 2)
    submit()
    submit(delay_s=60.0)
    found = store(pulse.figures)
    assert found.jobs == {
        JobStatus.PENDING: 2,
        JobStatus.RUNNING: 1,
        JobStatus.RETRY: 1,
        JobStatus.WAITING_FOR_APPROVAL: 1,
    }
    assert found.letters == {
        DeadLetterState.OPEN: 2,
        DeadLetterState.ESCALATED: 0,
        DeadLetterState.ARCHIVED: 0,
    }
    assert found.due_count == 1


def test_the_oldest_is_found_among_all_types_and_priorities(
    store: Session, submit: Submit, database: str
) -> None:
    submit(type="b", priority=5)
    move_clock(database, 100)
    submit(type="b", priority=1)
    submit(type="a")
    submit(type="c", delay_s=900.0)
    move_clock(database, 130)
    found = store(pulse.figures)
    assert found.due_count == 3
    assert found.oldest_due_s == pytest.approx(130, abs=20)


def test_a_job_that_was_handed_back_is_due_since_then(
    store: Session, running: Run, pod_id: UUID, database: str
) -> None:
    claim = running()
    move_clock(database, 1_200)
    back = Release(lease=claim.lease, outcome="handed_back", is_counted=False)
    assert store(tasks.release, pod_id=pod_id, operations=[back])
    move_clock(database, 1_300)
    assert store(pulse.figures).oldest_due_s == pytest.approx(100, abs=20)


def test_handed_back_jobs_do_not_hide_older_waiting_jobs(
    store: Session, running: Run, submit: Submit, pod_id: UUID, database: str
) -> None:
    claims = [running() for _ in range(5)]
    move_clock(database, 100)
    submit()
    move_clock(database, 3_600)
    back = [Release(lease=each.lease, outcome="handed_back", is_counted=False) for each in claims]
    assert store(tasks.release, pod_id=pod_id, operations=back)
    assert store(pulse.figures).oldest_due_s == pytest.approx(3_500, abs=20)


def test_paused_queues_do_not_count_as_due(store: Session, submit: Submit, database: str) -> None:
    began = sql(database, "SELECT cortex.now() AS at")[0]["at"]
    for waited_s, fields in enumerate(
        ({"type": "b", "queue_name": "post"}, {"type": "a"}, {"type": "a", "queue_name": "mail"})
    ):
        stop_clock(database, began - timedelta(seconds=waited_s))
        submit(**fields)
    stop_clock(database, began)

    def output() -> tuple[int, float]:
        found = store(pulse.figures)
        return found.due_count, found.oldest_due_s

    store(tasks.promote)
    assert output() == (3, 2)
    assert store(pauses.pause, Pausable(PauseKind.QUEUE, "mail"), by="ana", reason="test")
    assert output() == (2, 1)
    assert store(pauses.pause, Pausable(PauseKind.QUEUE), by="ana", reason="test")
    assert output() == (1, 0)
    assert store(pauses.pause, Pausable(PauseKind.QUEUE, "post"), by="ana", reason="test")
    assert output() == (0, 0)
    assert store(pauses.resume, Pausable(PauseKind.QUEUE, "mail"), by="ana", reason="test")
    assert output() == (1, 2)


def test_counting_stops_at_its_limit(store: Session, submit: Submit, database: str) -> None:
    for _ in range(5):
        submit()
    fail(database, 5)
    found = store(pulse.figures, limit=3)
    assert found.jobs[JobStatus.PENDING] == found.due_count == 3
    assert found.letters[DeadLetterState.OPEN] == 3


def test_claim_reports_how_long_its_job_was_due(
    submit: Submit, claim: Callable[..., list[Claim]], pod_id: UUID, database: str
) -> None:
    fields: dict[str, Any] = {"delay_s": 40.0}
    submit(**fields)
    move_clock(database, 100)
    (claimed,) = claim(pod_id)
    assert claimed.due_for_s == pytest.approx(60, abs=20)
