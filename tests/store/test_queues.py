"""Queues: paused ones are neither promoted nor claimed, and all others continue."""

from collections.abc import Callable
from uuid import UUID

import pytest

from cortex.domain.job import Claim, Finish, JobStatus, Release
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.postgres.session import Session
from cortex.store import jobs, pauses, queues, tasks
from cortex.store.queues import QueueRow
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import sql

Submits = Callable[..., UUID]
Claims = Callable[..., list[Claim]]


def ids(claims: list[Claim]) -> set[UUID]:
    return {each.lease.job_id for each in claims}


def row(store: Session, queue: str | None) -> QueueRow:
    (found,) = store(queues.page, [queue])
    return found


def figures(found: QueueRow) -> tuple[int, int, int]:
    return found.ready, found.running, found.later


def finish(store: Session, pod_id: UUID, claims: list[Claim]) -> None:
    done = [Finish(lease=each.lease, status=JobStatus.COMPLETED, result=None) for each in claims]
    store(jobs.finish, pod_id=pod_id, operations=done)


def test_jobs_of_a_paused_tenant_make_way_in_their_queue(
    database: str, store: Session, submit: Submits, claim: Claims
) -> None:
    paused = {submit(queue_name="q", tenant="slow") for _ in range(3)}
    other = submit(queue_name="q", tenant="quick")
    slow = Pausable(PauseKind.TENANT, "slow")
    assert store(pauses.pause, slow, by="ana", reason="why")
    pod_id = new_id()
    found = claim(pod_id)
    assert ids(found) == {other}, "all of them at once, not one in each turn of a runner"
    set_aside = "SELECT job_id FROM cortex_worker.task WHERE state = 'PAUSED' AND pause = $1"
    assert {each["job_id"] for each in sql(database, set_aside, str(slow))} == paused
    assert store(pauses.resume, slow, by="ana")
    finish(store, pod_id, found)
    assert ids(claim(pod_id)) < paused


@pytest.mark.parametrize("paused, other", [("a", "b"), ("a", None), (None, "a")])
def test_paused_queue_holds_its_jobs_and_no_others(
    store: Session, submit: Submits, claim: Claims, paused: str | None, other: str | None
) -> None:
    held = submit(queue_name=paused)
    free = submit(queue_name=other)
    assert store(pauses.pause, Pausable(PauseKind.QUEUE, paused or ""), by="ana", reason="deploy")
    assert ids(claim(new_id())) == {free}
    assert ids(claim(new_id())) == set()
    assert store(pauses.resume, Pausable(PauseKind.QUEUE, paused or ""), by="ben")
    assert ids(claim(new_id())) == {held}


def test_ready_job_waits_when_its_queue_is_paused(
    store: Session, submit: Submits, claim: Claims
) -> None:
    held = submit(queue_name="a")
    store(tasks.promote)
    store(pauses.pause, Pausable(PauseKind.QUEUE, "a"), by="ana", reason="deploy")
    assert ids(claim(new_id())) == set()
    store(pauses.resume, Pausable(PauseKind.QUEUE, "a"), by="ana")
    assert ids(claim(new_id())) == {held}


@pytest.mark.parametrize("paused", [None, "a"])
def test_a_suspect_of_a_paused_queue_waits_too(
    store: Session, database: str, submit: Submits, claim: Claims, paused: str | None
) -> None:
    held = submit(queue_name=paused)
    store(tasks.promote)
    sql(database, "UPDATE cortex_worker.task SET is_suspect = true")
    store(pauses.pause, Pausable(PauseKind.QUEUE, paused or ""), by="ana", reason="deploy")
    assert ids(claim(new_id())) == set()
    store(pauses.resume, Pausable(PauseKind.QUEUE, paused or ""), by="ana")
    assert ids(claim(new_id())) == {held}


def test_running_job_of_a_paused_queue_completes(
    store: Session, submit: Submits, claim: Claims
) -> None:
    pod_id = new_id()
    first, second = submit(queue_name="a"), submit(queue_name="a")
    claims = claim(pod_id)
    assert ids(claims) == {first}
    store(pauses.pause, Pausable(PauseKind.QUEUE, "a"), by="ana", reason="deploy")
    assert figures(row(store, "a")) == (1, 1, 0)
    finish(store, pod_id, claims)
    assert ids(claim(pod_id)) == set()
    store(pauses.resume, Pausable(PauseKind.QUEUE, "a"), by="ana")
    assert ids(claim(pod_id)) == {second}


def test_a_job_that_becomes_due_while_the_default_queue_is_paused_waits(
    store: Session, database: str, submit: Submits, claim: Claims
) -> None:
    later = submit(delay_s=60.0)
    store(pauses.pause, Pausable(PauseKind.QUEUE), by="ana", reason="deploy")
    assert figures(row(store, None)) == (0, 0, 1)
    move_clock(database, 61)
    assert ids(claim(new_id())) == set()
    assert figures(row(store, None)) == (1, 0, 0)
    store(pauses.resume, Pausable(PauseKind.QUEUE), by="ana")
    assert ids(claim(new_id())) == {later}


def test_repeated_pause_or_resume_records_nothing(store: Session, database: str) -> None:
    assert store(pauses.pause, Pausable(PauseKind.QUEUE, "a"), by="ana", reason="deploy")
    assert not store(
        pauses.pause, Pausable(PauseKind.QUEUE, "a"), by="ben", reason="something else"
    )
    seen = row(store, "a")
    assert (seen.paused_by, seen.reason) == ("ana", "deploy")
    assert store(pauses.resume, Pausable(PauseKind.QUEUE, "a"), by="ben", reason="deployed")
    assert not store(pauses.resume, Pausable(PauseKind.QUEUE, "a"), by="ben", reason="deployed")
    facts = sql(
        database,
        "SELECT subtype, source, data->>'by' AS by, data->>'reason' AS reason "
        "FROM cortex.fact WHERE subtype LIKE 'queue%' ORDER BY id",
    )
    assert [tuple(each) for each in facts] == [
        ("queue_paused", "queue:a", "ana", "deploy"),
        ("queue_resumed", "queue:a", "ben", "deployed"),
    ]


def test_a_list_has_the_default_queue_the_paused_and_those_with_tasks(
    store: Session, database: str, submit: Submits, claim: Claims
) -> None:
    submit()
    submit(queue_name="b")
    running = submit(queue_name="c")
    claim(new_id())
    submit(queue_name="d", delay_s=60.0)
    submit()
    store(pauses.pause, Pausable(PauseKind.QUEUE, "z"), by="ana", reason="not yet")
    move_clock(database, 7)
    found = {each.queue: each for each in store(queues.page)}
    assert list(found) == [None, "z", "b", "c", "d"]
    assert running is not None
    assert figures(found[None]) == (1, 1, 0)
    assert figures(found["z"]) == (0, 0, 0)
    assert figures(found["b"]) == (0, 1, 0)
    assert figures(found["d"]) == (0, 0, 1)
    assert found[None].oldest_ready_s == pytest.approx(7, abs=5)
    assert found["b"].oldest_ready_s is None
    assert not any(each.is_capped for each in found.values())


@pytest.mark.parametrize("queue", [None, "a"])
@pytest.mark.parametrize("is_head", [False, True])
def test_handed_back_job_is_ready_since_its_return(
    store: Session,
    database: str,
    submit: Submits,
    claim: Claims,
    queue: str | None,
    *,
    is_head: bool,
) -> None:
    submit(queue_name=queue)
    pod_id = new_id()
    (claimed,) = claim(pod_id)
    move_clock(database, 1_200)
    back = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    assert store(tasks.release, pod_id=pod_id, operations=[back])
    if is_head:
        store(tasks.promote)
    move_clock(database, 1_300)
    assert row(store, queue).oldest_ready_s == pytest.approx(100, abs=20)
    submit(queue_name=queue)
    move_clock(database, 2_000)
    assert row(store, queue).oldest_ready_s == pytest.approx(800, abs=20)


@pytest.mark.parametrize("queue", [None, "a"])
def test_handed_back_jobs_do_not_hide_older_waiting_jobs(
    store: Session, database: str, submit: Submits, claim: Claims, queue: str | None
) -> None:
    count = 30 if queue is None else 1  # of a named queue one runs at a time
    for _ in range(count):
        submit(queue_name=queue)
    pod_id = new_id()
    claims = claim(pod_id)
    assert len(claims) == count
    move_clock(database, 100)
    submit(queue_name=queue)
    move_clock(database, 3_600)
    back = [Release(lease=each.lease, outcome="handed_back", is_counted=False) for each in claims]
    assert store(tasks.release, pod_id=pod_id, operations=back)
    assert row(store, queue).oldest_ready_s == pytest.approx(3_500, abs=20)


def test_oldest_of_many_handed_back_jobs_counts(
    store: Session, database: str, submit: Submits, claim: Claims
) -> None:
    """All that were looked at, not that which was submitted first."""
    first, second = submit(queue_name="a"), submit(queue_name="a")
    pod_id = new_id()
    (claimed,) = claim(pod_id)
    back = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    move_clock(database, 2_000)
    assert store(tasks.release, pod_id=pod_id, operations=[back])
    # As if each had been handed back once, the second one long before the first.
    sql(
        database,
        "INSERT INTO cortex.job_attempt (job_id, attempt, outcome, due_at, ended_at, retry_count) "
        "VALUES ($1, 1, 'handed_back', now(), cortex.now() - interval '900 seconds', 0)",
        second,
    )
    sql(database, "UPDATE cortex_worker.task SET attempt = 1 WHERE job_id = $1", second)
    assert first == claimed.lease.job_id
    assert row(store, "a").oldest_ready_s == pytest.approx(900, abs=20)


def test_counting_ends_at_a_bound(
    store: Session, submit: Submits, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        submit()
        submit(queue_name="a")
    monkeypatch.setattr(queues, "COUNTED_MAX", 3)
    for queue in (None, "a"):
        assert figures(row(store, queue)) == (3, 0, 0)
        assert row(store, queue).is_capped
