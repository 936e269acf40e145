"""One statement reads many jobs: their results, and their events after a position."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
)
from cortex.domain.job_feed import START, JobEvent, JobState, Position, events_after
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import feed, jobs, steps, tasks
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

Running = Callable[..., Claim]


@pytest.fixture
def finish(store: Session, pod_id: UUID) -> Callable[..., None]:
    def end(claim: Claim, status: JobStatus = JobStatus.COMPLETED, **fields: Any) -> None:
        operation = Finish(lease=claim.lease, status=status, **fields)
        assert store(jobs.finish, pod_id=pod_id, operations=[operation]) == {claim.lease.job_id}

    return end


@pytest.fixture
def step(store: Session, pod_id: UUID) -> Callable[..., None]:
    def commit(claim: Claim, seq: int) -> None:
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.STEP,
            key=f"step {seq}",
            digest=b"",
            duration_s=0.1,
            output="1",
            ended_at=0.0,
            tally=Tally(()),
        )
        numbered = NumberedStep(done, seq, f'{{"seq": {seq}}}')
        assert store(steps.commit, pod_id=pod_id, operations=[numbered])

    return commit


def story(store: Session, job_id: UUID, after: Position = START) -> list[JobEvent]:
    """All that happened, look by look, until there is no more."""
    events: list[JobEvent] = []
    while True:
        happened = store(feed.since, [(job_id, after)]).get((job_id, after))
        if happened is None:
            return events
        new = events_after(after, happened)
        events += new
        after = new[-1].position if new else after
        if happened.is_complete:
            return events


def text(events: list[JobEvent]) -> list[str]:
    names = [each.data.get("new") or each.data.get("key") for each in events]
    return [
        f"{e.kind.value} {name or e.data['attempt']}" for e, name in zip(events, names, strict=True)
    ]


# --- results


def test_results_return_only_ended_jobs(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    running: Running,
    finish: Callable[..., None],
) -> None:
    done, failed, going = running(), running(), running()
    waiting, cancelled, unknown = submit(), submit(), new_id()
    finish(done, result='{"x": [1, 2.50]}')
    finish(failed, JobStatus.FAILED, error="broken", code="job_failed", error_class="PERMANENT")
    store(jobs.cancel, cancelled, by="ana", reason="enough")
    ids = [waiting, unknown, done.lease.job_id, failed.lease.job_id, cancelled, going.lease.job_id]
    found = store(feed.results, ids)
    assert found.unknown == {unknown}
    assert found.left_out == frozenset()
    assert set(found.ended) == {done.lease.job_id, failed.lease.job_id, cancelled}
    rows = sql(database, "SELECT id, finished_at FROM cortex.job")
    at = {row["id"]: row["finished_at"] for row in rows}
    assert found.ended[done.lease.job_id] == JobState(
        job_id=done.lease.job_id,
        status=JobStatus.COMPLETED,
        finished_at=at[done.lease.job_id],
        result='{"x": [1, 2.50]}',
    )
    assert found.ended[failed.lease.job_id] == JobState(
        job_id=failed.lease.job_id,
        status=JobStatus.FAILED,
        finished_at=at[failed.lease.job_id],
        error_code="job_failed",
        error_class="PERMANENT",
        error_message="broken",
    )
    assert found.ended[cancelled].cancelled_by == "ana"
    assert found.ended[cancelled].cancel_reason == "enough"


def test_large_results_come_a_part_at_a_time(
    store: Session,
    running: Running,
    finish: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cortex.store.feed.RESULT_BYTES_MAX", 5_000)
    ids = []
    for letter in "abcd":
        claim = running()
        ids.append(claim.lease.job_id)
        noise = "".join(f"{letter}{n}" for n in range(1_000))  # does not compress to nothing
        finish(claim, result=f'"{noise}"')
    seen: list[UUID] = []
    rounds = 0
    while ids:
        found = store(feed.results, ids)
        assert found.ended, "the first is whole, however large"
        assert set(found.ended) | found.left_out == set(ids)
        seen += found.ended
        ids = [each for each in ids if each in found.left_out]
        rounds += 1
    assert len(seen) == 4
    assert rounds > 1


def test_empty_list_of_jobs_returns_empty_results(store: Session) -> None:
    assert store(feed.results, []).ended == {}
    assert store(feed.since, []) == {}


# --- events


def test_story_is_ordered_and_continues_from_any_position(
    store: Session, running: Running, step: Callable[..., None], finish: Callable[..., None]
) -> None:
    claim = running()
    for seq in (1, 2):
        step(claim, seq)
    finish(claim)
    events = story(store, claim.lease.job_id)
    assert text(events) == [
        "moved PENDING",
        "moved RUNNING",
        "step step 1",
        "step step 2",
        "moved COMPLETED",
    ]
    for number, event in enumerate(events, 1):
        assert story(store, claim.lease.job_id, event.position) == events[number:]


def test_story_pages_end_with_the_terminal_event(
    store: Session,
    running: Running,
    step: Callable[..., None],
    finish: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cortex.store.feed.ROWS_OF_JOB_MAX", 10)
    claim = running()
    for seq in range(1, 36):
        step(claim, seq)
    finish(claim)
    events = story(store, claim.lease.job_id)
    assert [e.data["seq"] for e in events if "seq" in e.data] == list(range(1, 36))
    assert events[-1].is_ending
    assert len(events) == 35 + 3


def test_several_jobs_from_different_places_at_once(
    store: Session, running: Running, step: Callable[..., None], finish: Callable[..., None]
) -> None:
    quiet, busy, over, unknown = running(), running(), running(), new_id()
    finish(over)
    places = {
        claim.lease.job_id: story(store, claim.lease.job_id)[-1].position
        for claim in (quiet, busy, over)
    }
    step(busy, 1)
    asked = [*places.items(), (unknown, START)]
    found = store(feed.since, asked)
    by_job = {job_id: happened for (job_id, _), happened in found.items()}
    assert set(by_job) == {busy.lease.job_id, over.lease.job_id, unknown}
    assert by_job[unknown] is None
    ended, news = by_job[over.lease.job_id], by_job[busy.lease.job_id]
    assert ended is not None
    assert ended.is_over
    assert news is not None
    assert [row["key"] for row in news.steps] == ["step 1"]
    assert not news.is_over


def test_story_contains_handed_back_attempts(
    store: Session,
    running: Running,
    claim: Callable[..., list[Claim]],
    pod_id: UUID,
) -> None:
    first = running()
    release = Release(lease=first.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=pod_id, operations=[release])
    (second,) = claim(pod_id)
    events = story(store, first.lease.job_id)
    assert text(events) == ["moved PENDING", "moved RUNNING", "attempt_ended 1", "claimed 2"]
    assert second.lease.attempt == 2
    assert story(store, first.lease.job_id, events[-1].position) == []
