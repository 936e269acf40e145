"""The state of one job on its screen, without a screen."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from cortex.store.job_screen import WatchedJob
from cortex_tui.model.open_job import End, OpenJob
from tests.support.records.job_rows import a_watched_job
from tests.support.terminal.tui_job import BEGAN, a_step

TURN = [
    a_step(1, "1 model", "model"),
    a_step(2, "1 fetch", "tool"),
    a_step(3, "1 send", "tool"),
    a_step(4, "2 model", "model"),
]


def record(**fields: Any) -> WatchedJob:
    ended_at = BEGAN + timedelta(seconds=100)
    basic = {"status": "COMPLETED", "attempt": 1, "started_at": BEGAN, "finished_at": ended_at}
    return a_watched_job({**basic, **fields})


def opened(count: int = len(TURN)) -> OpenJob:
    """A job with its first steps."""
    job = OpenJob(id=UUID(int=1), row=record())
    job.steps.renew(TURN[:count], newest=len(TURN))
    job.rearrange(follows=False)
    return job


def numbers(job: OpenJob) -> list[int | None]:
    return [row.number for row in job.window.rows]


def at_cursor(job: OpenJob) -> int | None:
    return None if job.window.current is None else job.window.current.number


def test_unread_job_shows_nothing() -> None:
    job = OpenJob(id=UUID(int=1))
    job.rearrange(End.NEWEST, follows=True)
    assert (job.window.rows, job.detail_version, job.is_over) == ([], None, False)
    assert not job.fold(is_open=False)


def test_an_end_that_was_read_takes_the_cursor_there() -> None:
    job = opened()
    job.rearrange(End.NEWEST, follows=False)
    assert at_cursor(job) == 4
    job.rearrange(End.OLDEST, follows=True)
    assert at_cursor(job) == 1


def test_a_cursor_on_the_newest_step_follows_and_one_elsewhere_stays() -> None:
    job = opened(count=3)
    for start, follows, end in ((2, False, 3), (2, True, 4), (1, True, 2)):
        job.steps.renew(TURN[:3], newest=3)
        job.rearrange(follows=False)
        job.window.move_to(start)
        job.steps.extend(TURN[3:], newest=4)
        job.rearrange(follows=follows)
        assert at_cursor(job) == end


def test_folded_call_takes_the_cursor_to_itself() -> None:
    job = opened()
    job.window.move_to(2)
    assert job.fold(is_open=False)
    job.rearrange(follows=False)
    assert (numbers(job), at_cursor(job)) == ([1, 4], 1)
    assert job.fold(is_open=True)
    job.rearrange(follows=False)
    assert numbers(job) == [1, 2, 3, 4]


def test_an_answer_without_calls_does_not_fold() -> None:
    job = opened()
    job.window.move_to(3)
    assert not job.fold(is_open=False)
    assert job.folded == frozenset()


def test_movement_to_an_unloaded_end_goes_beyond() -> None:
    job = opened(count=2)
    assert job.goes_beyond("end")
    assert not job.goes_beyond("top")
    assert not job.goes_beyond("down")
    job.steps.renew(TURN[2:], newest=4)
    assert not job.goes_beyond("end")
    assert job.goes_beyond("top")
    assert not job.is_whole


def test_a_detail_holds_until_the_row_or_the_job_has_another_state() -> None:
    job = opened()
    before = job.detail_version
    job.rearrange(follows=False)
    assert job.detail_version == before
    job.window.move_to(1)
    assert job.detail_version != before
    job.window.move_to(0)
    job.row = record(status="FAILED")
    assert job.detail_version != before
