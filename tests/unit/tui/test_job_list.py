"""The state of the list of jobs, without a screen."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.job import JobStatus
from cortex.store.job_pages import JobPage
from cortex.store.jobs import ListedJob
from cortex_tui.model.job_list import SHORT_PAGES_MAX, JobList
from cortex_tui.model.job_order import Order
from cortex_tui.model.wait_reasons import EVERY_S, WaitReasons
from tests.support.records.job_rows import a_listed_job

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, **fields: Any) -> ListedJob:
    """A job; a larger number is newer."""
    created_at = BEGAN + timedelta(seconds=number)
    basic = {"id": UUID(int=number), "created_at": created_at, "status": JobStatus.PENDING}
    return a_listed_job({**basic, **fields})


def page(*rows: ListedJob, is_short: bool = False) -> JobPage:
    return JobPage(jobs=list(rows), next=None, is_short=is_short)


def numbers(rows: Sequence[ListedJob]) -> list[int]:
    return [row.id.int for row in rows]


def test_jobs_that_are_newer_than_the_first_page_are_counted_and_not_shown() -> None:
    jobs = JobList(text="type:digest")
    jobs.begin(page(job(3), job(2)))
    assert jobs.count_new([job(5), job(4), job(3)])
    assert (jobs.new_count, numbers(jobs.window.rows)) == (2, [3, 2])
    assert not jobs.count_new([job(5), job(4), job(3)])
    jobs.begin(page(job(5), job(4), job(3), job(2)))
    assert jobs.new_count == 0


def test_in_the_order_of_due_times_every_job_that_is_not_shown_is_new() -> None:
    jobs = JobList(order=Order.DUE)
    jobs.begin(page(job(3), job(2)))
    jobs.count_new([job(1), job(3)])
    assert jobs.new_count == 1


def test_invalid_filter_keeps_the_list_unchanged() -> None:
    jobs = JobList(text="type:digest")
    jobs.marks.take_all()
    before = jobs.which
    with pytest.raises(UsageError):
        jobs.filter_by("colour:red")
    assert (jobs.which, jobs.text, jobs.marks.is_all) == (before, "type:digest", True)


def test_a_filter_clears_marks_on_jobs_that_it_may_not_list() -> None:
    jobs = JobList()
    jobs.marks.toggle(UUID(int=1))
    jobs.filter_by("type:digest")
    assert not jobs.marks


def test_selection_of_all_includes_the_filter_of_its_order() -> None:
    jobs = JobList(text="type:digest", order=Order.DUE)
    jobs.marks.take_all()
    selection = jobs.selection
    assert selection.which.statuses == (JobStatus.RETRY,)
    assert selection.arguments[:2] == ("--filter", "type:digest status:RETRY")
    jobs.marks.clear()
    jobs.marks.toggle(UUID(int=7))
    assert jobs.selection.arguments == (str(UUID(int=7)),)


def test_the_next_wanted_row_is_found_around_the_end() -> None:
    jobs = JobList()
    assert jobs.find(1, lambda _: True) is None
    jobs.begin(page(job(3), job(2), job(1)))
    jobs.window.move_to(1)
    assert jobs.find(1, lambda row: row.id.int == 3) == 0
    assert jobs.find(-1, lambda row: row.id.int == 1) == 2
    assert jobs.find(1, lambda row: row.id.int == 9) is None


def test_a_scan_that_matches_little_ends() -> None:
    jobs = JobList(text="type:digest")
    jobs.begin(page(job(2)))
    jobs.window.below = jobs.newest
    for _ in range(SHORT_PAGES_MAX):
        assert jobs.wants_below
        jobs.extend(JobPage(jobs=[], next=jobs.newest, is_short=True))
    assert not jobs.wants_below


def test_a_reason_holds_while_the_state_is_the_same() -> None:
    jobs = JobList()
    jobs.begin(page(job(1, status="RETRY", retry_count=1)))
    assert jobs.explain(jobs.waiting_in_sight, {UUID(int=1): "breaker open"})
    assert jobs.window.rows[0].why == "breaker open"
    jobs.count_new([job(1, status="RETRY", retry_count=2)])
    assert jobs.window.rows[0].why == ""


def test_reasons_are_read_again_for_other_states_soon_and_else_at_times() -> None:
    reasons, row = WaitReasons(gap_s=2), job(1, status="RETRY")
    assert not reasons.wants([], 100)
    assert reasons.wants([row], 100)
    reasons.begin(100)
    assert not reasons.wants([row], 101)  # a read that failed waits, too
    reasons.put([row], {})
    assert not reasons.wants([row], 103)
    assert not reasons.wants([row, job(2)], 101)
    assert reasons.wants([row, job(2)], 102)
    assert reasons.wants([row], 100 + EVERY_S)
