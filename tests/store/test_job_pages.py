"""Lists of jobs: filters, order, pages and bounded work."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.errors import UsageError
from cortex.domain.job import JobStatus, Submission
from cortex.domain.job_filter import JobCursor, JobFilter, parse_filter
from cortex.postgres.session import Session
from cortex.store import job_pages, jobs, specs
from cortex.store.specs import SpecKind
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import sql

IDS = [UUID(int=(7 << 76) + number) for number in range(1, 7)]
NEWEST_FIRST = IDS[::-1]


@pytest.fixture
def some(store: Session) -> Session:
    """Six jobs of one instant: the second, fourth and sixth of another type, two with an agent."""
    for name in ("researcher", "invoice-1"):
        store(specs.apply, SpecKind.AGENT, new_id=new_id(), name=name, spec={}, by="ana")
    named = [None, None, "researcher", "invoice-1", None, None]
    store(
        jobs.submit,
        [
            a_submission(
                id=each,
                type="other" if number % 2 else JOB_TYPE,
                agent=agent,
                queue_name="100%" if number == 0 else None,
                tenant="a_b" if number == 1 else None,
            )
            for number, (each, agent) in enumerate(zip(IDS, named, strict=True))
        ],
    )
    return store


def listed(store: Session, text: str = "", **more: Any) -> list[UUID]:
    return [row.id for row in store(job_pages.page, parse_filter(text), **more).jobs]


def walked(store: Session, which: JobFilter, *, limit: int) -> Iterator[Sequence[UUID]]:
    """The pages of a list, one after another."""
    place = None
    while True:
        found = store(job_pages.page, which, before=place, limit=limit)
        yield [row.id for row in found.jobs]
        if (place := found.next) is None:
            return


def test_jobs_are_listed_newest_first_in_pages(some: Session) -> None:
    assert listed(some) == NEWEST_FIRST
    assert listed(some, limit=2) == NEWEST_FIRST[:2]
    assert listed(some, before=JobCursor(NEWEST_FIRST[1]), limit=2) == NEWEST_FIRST[2:4]
    assert listed(some, before=JobCursor(new_id())) == []


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("type:other", [6, 4, 2]),
        ("type:oth*", [6, 4, 2]),
        ("type:ther", []),
        ("agent:researcher", [3]),
        ("agent:*-1,researcher", [4, 3]),
        ("agent:* type:other", [4]),
        ("agent:nobody", []),
        ("agent:nobody* status:pend", []),
        ("agent:invoice-* status:pend", [4]),
        ("agent:invoice-* status:done", []),
        ("queue:100%", [1]),
        ("queue:1%", []),
        ("queue:*", [1]),
        ("tenant:a_b", [2]),
        ("tenant:a__", []),
        ("tenant:a*b", [2]),
        ("code:*", []),
        ("pod:*", []),
        ("status:run,done", []),
        ("id:" + str(IDS[2]), [3]),
        ("id:0006,0005", [6, 5]),
        ("id:0006,0005 type:other", [6]),
        ("id:ffff", []),
        ("age>1h", []),
        ("age<1h", [6, 5, 4, 3, 2, 1]),
        ("created>2020-01-01", [6, 5, 4, 3, 2, 1]),
        ("created<2020-01-01", []),
        ("type:'x'' OR 1=1 --'", []),
        ("type:%", []),
        ("type:\\", []),
        ("agent:\\%*\\", []),
        ("tenant:\U0001d4b3é*\u202e", []),
        ("type:" + "*a" * 40, []),
    ],
)
def test_filter_lists_the_matching_jobs(some: Session, text: str, numbers: list[int]) -> None:
    assert listed(some, text) == [IDS[number - 1] for number in numbers]


def test_ages_go_by_the_clock_of_the_database(some: Session, database: str) -> None:
    move_clock(database, 7200)
    assert len(listed(some, "age>1h age<3h")) == 6
    assert listed(some, "age<1h") == []


def test_other_ways_in_find_the_same(some: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = listed(some, "agent:*")
    monkeypatch.setattr(job_pages, "AGENTS_MAX", 1)
    assert listed(some, "agent:*") == whole
    assert listed(some, "agent:* status:pend") == whole


@pytest.mark.parametrize("text", ["", "type:*", "agent:*", "status:pend,run type:other"])
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_show_each_job_exactly_once(some: Session, text: str, limit: int) -> None:
    pages = list(walked(some, parse_filter(text), limit=limit))
    assert [each for page in pages for each in page] == listed(some, text, limit=100)
    assert all(len(page) == limit for page in pages[:-1])


def test_jobs_that_come_meanwhile_do_not_move_the_pages(some: Session) -> None:
    pages = walked(some, parse_filter("status:pend"), limit=2)
    seen = list(next(pages))
    for page in pages:
        some(jobs.submit, [a_submission(), a_submission()])
        seen += page
    assert seen == NEWEST_FIRST


def test_page_reads_a_bounded_number_of_jobs(
    some: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pages, "LOOKED_MAX", 2)
    found = some(job_pages.page, parse_filter("type:nothing"))
    assert (found.jobs, found.is_short) == ([], True)
    assert found.next is not None
    assert found.next.id == NEWEST_FIRST[1]
    pages = list(walked(some, parse_filter("agent:* status:pend"), limit=5))
    assert [list(page) for page in pages] == [[], [IDS[3], IDS[2]], [], []]
    exact = some(job_pages.page, parse_filter("status:pend"), limit=4)
    assert (len(exact.jobs), exact.is_short) == (4, False)


def test_filter_with_too_many_ids_is_refused(some: Session) -> None:
    with pytest.raises(UsageError, match="11 ids in one filter are more than 10"):
        listed(some, "id:" + ",".join(f"{n:04x}" for n in range(11)))


def test_states_and_codes(some: Session, database: str) -> None:
    failed = IDS[0]
    for change in ("RUNNING'", "FAILED', error_message = 'no', error_code = 'oops'"):
        sql(database, f"UPDATE cortex.job_record SET status = '{change} WHERE id = $1", failed)  # noqa: S608
    assert listed(some, "status:fail") == [failed]
    assert listed(some, "code:oops") == [failed]
    assert listed(some, "code:o*s,x") == [failed]
    assert listed(some, "code:oop") == []


@pytest.fixture
def awaiting(some: Session, database: str) -> Session:
    """The first five wait for something: three for a person, two in RETRY."""
    waits = ("x:x", f"effect:{IDS[0]}", "budget:x", "quota:x", "llm:x")
    for job_id, waiting_on in zip(IDS, waits, strict=False):
        status = "RETRY" if waiting_on in waits[3:] else "WAITING_FOR_APPROVAL"
        sql(database, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", job_id)
        sql(
            database,
            "UPDATE cortex.job_record SET status = $2::text::cortex.job_status, waiting_on = $3,"
            " next_retry_at = CASE WHEN $2::text = 'RETRY' THEN cortex.now() END,"
            " worker_job_id = NULL WHERE id = $1",
            *(job_id, status, waiting_on),
        )
    asks = f"approval:{IDS[0]}"  # only of a change of its state the history is written
    sql(database, "UPDATE cortex.job_record SET waiting_on = $2 WHERE id = $1", IDS[0], asks)
    return some


@pytest.mark.parametrize(
    "text, places",
    [
        ("status:appr", (0, 1, 2)),
        ("status:asks", (0,)),
        ("status:effect", (1,)),
        ("status:budget", (2, 3)),
        ("status:retry", (4,)),
        ("status:effect,retry", (1, 4)),
        ("status:retry,budget", (2, 3, 4)),
        ("status:person", ()),
    ],
)
def test_status_filter_matches_what_jobs_wait_for(
    awaiting: Session, text: str, places: tuple[int, ...]
) -> None:
    wanted = {IDS[place] for place in places}
    assert set(listed(awaiting, text)) == wanted
    up = awaiting(job_pages.page_up, parse_filter(text), limit=9)
    assert {row.id for row in up.jobs} == wanted
    due = awaiting(job_pages.page_due, parse_filter(text), limit=9)
    assert {row.id for row in due.jobs} == wanted & {IDS[3], IDS[4]}


def test_a_place_keeps_its_instant(some: Session, database: str) -> None:
    """The job at which a list continues may be gone."""
    place = JobCursor(new_id(), datetime(2100, 1, 1, tzinfo=UTC))
    assert listed(some, before=place) == NEWEST_FIRST
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", IDS[5])
    assert some(job_pages.page, JobFilter().with_states(JobStatus.RUNNING)).jobs[0].id == IDS[5]


@pytest.mark.parametrize("limit", [1, 2, 4])
@pytest.mark.parametrize("text", ["", "type:other", "status:pend"])
def test_the_way_up_shows_the_same_jobs_as_the_way_down(
    some: Session, text: str, limit: int
) -> None:
    which = parse_filter(text)
    down = listed(some, text)
    found: list[UUID] = []
    place = None
    while True:
        page = some(job_pages.page_up, which, after=place, limit=limit)
        found[:0] = [row.id for row in page.jobs]
        if (place := page.next) is None:
            break
    assert found == down


@pytest.fixture
def waiting(some: Session, database: str) -> Session:
    """All but the last of the six are in RETRY: due in the order 3, 1 and 2 at once, 5, 4."""
    for number, due_s in ((1, 20), (2, 20), (3, 10), (4, 40), (5, 30)):
        job = IDS[number - 1]
        sql(
            database,
            "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1",
            job,
        )
        sql(
            database,
            "UPDATE cortex.job_record SET status = 'RETRY', "
            "next_retry_at = timestamptz '2100-01-01' + $2 * interval '1 second' WHERE id = $1",
            job,
            due_s,
        )
    return some


def due(store: Session, which: JobFilter, *, limit: int, is_up: bool) -> list[UUID]:
    """All that are due, page by page, in the order of the list."""
    found: list[UUID] = []
    place = None
    while True:
        if is_up:
            page = store(job_pages.page_due_up, which, before=place, limit=limit)
            found[:0] = [row.id for row in page.jobs]
        else:
            page = store(job_pages.page_due, which, after=place, limit=limit)
            found += [row.id for row in page.jobs]
        if (place := page.next) is None:
            return found


def test_jobs_in_retry_are_listed_by_due_time(waiting: Session) -> None:
    for text, numbers in {
        "": [3, 1, 2, 5, 4],
        "status:retry,run": [3, 1, 2, 5, 4],
        "status:run": [],
        "type:other": [2, 4],
        "agent:*": [3, 4],
        "queue:100%": [1],
        "tenant:a_b": [2],
        "code:*": [],
        "pod:*": [],
        "id:0004,0003": [3, 4],
        "id:ffff": [],
        "age>1h": [],
        "age<1h created>2020-01-01": [3, 1, 2, 5, 4],
        "created<2020-01-01": [],
    }.items():
        for limit, is_up in product((1, 2, 10), (False, True)):
            found = due(waiting, parse_filter(text), limit=limit, is_up=is_up)
            assert found == [IDS[number - 1] for number in numbers], (text, limit, is_up)


@pytest.mark.parametrize("is_up", [False, True])
def test_page_by_due_time_reads_a_bounded_number_of_jobs(
    waiting: Session, monkeypatch: pytest.MonkeyPatch, *, is_up: bool
) -> None:
    monkeypatch.setattr(job_pages, "LOOKED_MAX", 2)
    page = job_pages.page_due_up if is_up else job_pages.page_due
    found = waiting(page, parse_filter("type:nothing"))
    assert (found.jobs, found.is_short) == ([], True)
    assert found.next is not None
    assert found.next.id == IDS[4 if is_up else 0]
    every = due(waiting, parse_filter("type:other"), limit=5, is_up=is_up)
    assert every == [IDS[1], IDS[3]]


def test_the_way_up_begins_just_above_a_place(some: Session) -> None:
    page = some(job_pages.page_up, after=JobCursor(IDS[1]), limit=2)
    assert [row.id for row in page.jobs] == [IDS[3], IDS[2]]


def test_tags_are_kept_shown_and_filtered_by(store: Session, database: str) -> None:
    new = [new_id() for _ in range(3)]
    tags = (("eu", "big", "eu"), ("us",), ())
    submissions = [
        Submission(id=job_id, type="work", tags=each)
        for job_id, each in zip(new, tags, strict=True)
    ]
    assert store(jobs.submit, submissions).new == set(new)
    from_sql = sql(database, "SELECT cortex.submit_job('work', tags => ARRAY['eu-2']) AS id")[0][
        "id"
    ]

    def found(text: str) -> set[UUID]:
        return {job.id for job in store(job_pages.page, parse_filter(text)).jobs}

    assert found("tag:eu") == {new[0]}
    assert found("tag:eu*") == {new[0], from_sql}
    assert found("tag:us,big status:pend") == {new[0], new[1]}
    assert found("tag:none") == set()
    assert store(jobs.show, new[0]).tags == ("big", "eu")
    assert store(jobs.show, new[2]).tags is None
    with pytest.raises(asyncpg.CheckViolationError, match="up to 20 words"):
        sql(database, "SELECT cortex.submit_job('work', tags => ARRAY[''])")
