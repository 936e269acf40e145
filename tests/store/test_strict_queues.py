"""Strict queues: the next job begins only when the previous one has ended."""

from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Finish, JobStatus, Lease, Release, Suspend
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.session import Session
from cortex.store import jobs, pauses, queues, retries, tasks, why
from cortex.view.why import why as explain
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.servers.postgres import sql

POD = UUID(int=7)
Submits = Callable[..., UUID]
Claims = Callable[..., list[Claim]]


def is_tried_again(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=60.0, is_counted=True, error="busy")
    store(tasks.suspend, pod_id=POD, operations=[operation])


def sleeps(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=60.0, is_counted=False, waiting_on="sleep")
    store(tasks.suspend, pod_id=POD, operations=[operation])


def asks_a_person(store: Session, lease: Lease) -> None:
    operation = Suspend(lease=lease, delay_s=None, is_counted=False, waiting_on="person:billing")
    store(tasks.suspend, pod_id=POD, operations=[operation])


def fails_a_worker_attempt(store: Session, lease: Lease) -> None:
    operation = Release(lease=lease, outcome="failed", delay_s=60.0, is_counted=True)
    store(tasks.release, pod_id=POD, operations=[operation])


def go_on(store: Session, dsn: str, job_id: UUID) -> None:
    """Let the job that waits go on."""
    move_clock(dsn, 100)
    if job_row(dsn, job_id)["status"] == JobStatus.WAITING_FOR_APPROVAL:
        store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
    else:
        store(retries.due)


def ids(claims: list[Claim]) -> list[UUID]:
    return [each.lease.job_id for each in claims]


def finish(store: Session, claimed: Claim, status: JobStatus = JobStatus.COMPLETED) -> None:
    error = {"error": "no", "error_class": "PERMANENT"} if status is JobStatus.FAILED else {}
    done = Finish(lease=claimed.lease, status=status, **error)
    store(jobs.finish, pod_id=POD, operations=[done])


@pytest.mark.parametrize(
    "how",
    [
        (is_tried_again, True),
        (sleeps, True),
        (asks_a_person, True),
        (fails_a_worker_attempt, True),
        (sleeps, False),
    ],
    ids=["retry", "sleep", "person", "worker attempt", "relaxed"],
)
def test_the_next_job_of_a_strict_queue_waits_until_the_one_before_has_ended(
    database: str,
    store: Session,
    submit: Submits,
    claim: Claims,
    how: tuple[Callable[[Session, Lease], None], bool],
) -> None:
    waits, is_strict = how
    if is_strict:
        assert store(queues.make_strict, "q", by="ana", reason="in order")
    first = submit(queue_name="q")
    (claimed,) = claim(POD)
    second = submit(queue_name="q", priority=-5)
    waits(store, claimed.lease)
    if not is_strict:
        assert ids(claim(POD)) == [second]
        return
    assert claim(POD) == []
    found = explain(store(why.facts_of, second))
    assert found.sentence.startswith(f"its queue q is strict: job {first} has begun and waits")
    assert found.ways_out == (f"cortex why {first}",)
    go_on(store, database, first)
    (again,) = claim(POD)
    assert again.lease.job_id == first, "the one that has begun goes first, whatever its priority"
    finish(store, again, JobStatus.FAILED)
    assert ids(claim(POD)) == [second]


def test_handed_back_or_orphaned_job_keeps_its_strict_turn(
    database: str, store: Session, submit: Submits, claim: Claims
) -> None:
    sql(
        database,
        "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, liveness, state)"
        " VALUES ($1, 7, 'p', '1', '{work}', 1, 'lock', 'DEAD')",
        POD,
    )
    store(queues.make_strict, "q", by="ana", reason="in order")
    first = submit(queue_name="q")
    (claimed,) = claim(POD)
    submit(queue_name="q", priority=-5)
    operation = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=POD, operations=[operation])
    assert ids(claim(POD)) == [first]
    assert store(tasks.take_over, pod_id=POD, deaths_max=3, limit=10).freed_count == 1
    assert ids(claim(POD)) == [first]


def test_queue_made_strict_first_finishes_started_jobs(
    database: str, store: Session, submit: Submits, claim: Claims
) -> None:
    begun = [submit(queue_name="q") for _ in range(2)]
    for _ in begun:
        (claimed,) = claim(POD)
        sleeps(store, claimed.lease)
    last = submit(queue_name="q", priority=-5)
    assert store(queues.make_strict, "q", by="ana", reason="in order")
    assert not store(queues.make_strict, "q", by="ben", reason="again")
    assert claim(POD) == []
    move_clock(database, 100)
    store(retries.due)
    for _ in begun:
        (claimed,) = claim(POD)
        assert claimed.lease.job_id in begun
        finish(store, claimed)
    assert ids(claim(POD)) == [last]
    (row,) = store(queues.page, ["q"])
    assert row.is_strict
    assert store(queues.make_relaxed, "q", by="ana", reason="enough")
    assert not store(queues.make_relaxed, "q", by="ana", reason="enough")
    facts = sql(database, "SELECT subtype FROM cortex.fact WHERE source = 'queue:q' ORDER BY id")
    assert [each["subtype"] for each in facts] == ["queue_made_strict", "queue_made_relaxed"]


def is_cancelled(store: Session, job_id: UUID) -> None:
    store(jobs.cancel, job_id, by="ana", reason="")


def is_cancelled_between_worker_attempts(store: Session, job_id: UUID) -> None:
    store(jobs.cancel, job_id, by="ana", reason="")


def is_resumed(store: Session, _: UUID) -> None:
    assert store(pauses.resume, Pausable(PauseKind.QUEUE, "q"), by="ana")


def is_relaxed(store: Session, _: UUID) -> None:
    assert store(queues.make_relaxed, "q", by="ana", reason="")


@pytest.mark.parametrize(
    "moves_on", [is_cancelled, is_cancelled_between_worker_attempts, is_resumed, is_relaxed]
)
def test_queue_whose_job_waits_moves_on_at_once(
    store: Session, submit: Submits, claim: Claims, moves_on: Callable[[Session, UUID], None]
) -> None:
    store(queues.make_strict, "q", by="ana", reason="in order")
    first = submit(queue_name="q")
    (claimed,) = claim(POD)
    second = submit(queue_name="q")
    if moves_on is is_resumed:
        store(pauses.pause, Pausable(PauseKind.QUEUE, "q"), by="ana", reason="why")
        finish(store, claimed)
    elif moves_on is is_cancelled_between_worker_attempts:
        fails_a_worker_attempt(store, claimed.lease)
    else:
        sleeps(store, claimed.lease)
    assert claim(POD) == []
    assert store(tasks.walk_queues, after="").named_count == 0
    moves_on(store, first)
    assert ids(claim(POD)) == [second]


def test_queue_that_nothing_has_moved_on_is_found(
    database: str, store: Session, submit: Submits, claim: Claims
) -> None:
    lost = [submit(queue_name=name) for name in ("a", "b")]
    sql(database, "DELETE FROM cortex_worker.queue_due")
    assert claim(POD) == []
    assert store(tasks.walk_queues, after="b").named_count == 0, "it goes on from there"
    walk = store(tasks.walk_queues, after="")
    assert (walk.latest, walk.named_count) == (None, 2)
    assert store(tasks.walk_queues, after="").named_count == 0, "they are named once"
    found = claim(POD)
    assert sorted(ids(found)) == sorted(lost)
    store(queues.make_strict, "a", by="ana", reason="in order")
    begun = next(each for each in found if each.lease.job_id == lost[0])
    operation = Release(lease=begun.lease, outcome="failed", delay_s=0, is_counted=True)
    store(tasks.release, pod_id=POD, operations=[operation])
    sql(database, "DELETE FROM cortex_worker.queue_due")
    assert store(tasks.walk_queues, after="").named_count == 1, "one that has begun, too"
    assert ids(claim(POD)) == [lost[0]]
