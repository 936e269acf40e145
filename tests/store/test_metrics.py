"""What a scrape is told of the whole system, from rows of every state."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.dead_letter import LetterState
from cortex.domain.job import Claim, Finish, JobStatus, Suspend
from cortex.store import jobs, metrics, tasks
from cortex.store.session import Session
from tests.support.letters import fail
from tests.support.rows import move_clock

Submit = Callable[..., UUID]
Run = Callable[..., Claim]


def test_nothing_is_told_of_an_empty_database(store: Session) -> None:
    found = store(metrics.figures)
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
    found = store(metrics.figures)
    assert found.jobs == {
        JobStatus.PENDING: 2,
        JobStatus.RUNNING: 1,
        JobStatus.RETRY: 1,
        JobStatus.WAITING_FOR_APPROVAL: 1,
    }
    assert found.letters == {LetterState.OPEN: 2, LetterState.ESCALATED: 0}
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
    found = store(metrics.figures)
    assert found.due_count == 3
    assert found.oldest_due_s == pytest.approx(130, abs=20)


def test_counting_stops_at_its_limit(store: Session, submit: Submit, database: str) -> None:
    for _ in range(5):
        submit()
    fail(database, 5)
    found = store(metrics.figures, limit=3)
    assert found.jobs[JobStatus.PENDING] == found.due_count == 3
    assert found.letters[LetterState.OPEN] == 3


def test_a_claim_tells_for_how_long_its_job_has_been_due(
    submit: Submit, claim: Callable[..., list[Claim]], pod_id: UUID, database: str
) -> None:
    fields: dict[str, Any] = {"delay_s": 40.0}
    submit(**fields)
    move_clock(database, 100)
    (claimed,) = claim(pod_id)
    assert claimed.due_for_s == pytest.approx(60, abs=20)
