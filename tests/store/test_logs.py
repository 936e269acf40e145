"""Log lines in the database: stored once, read in order, deleted by age and with their job."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.job import Lease
from cortex.domain.log_line import Level, LogLine
from cortex.postgres.session import Session
from cortex.store import logs
from cortex.store.logs import LogPlace, LogRow, LogTail
from tests.support.records.rows import move_clock, new_id
from tests.support.servers.postgres import sql


def a_line(job_id: UUID, number: int, *, attempt: int = 1, **fields: object) -> LogLine:
    return LogLine(
        **{
            "lease": Lease(job_id, attempt),
            "job_type": "digest",
            "traceparent": None,
            "number": number,
            "written_at": 0.0,
            "level": Level.INFO,
            "step": None,
            "source": None,
            "message": f"line {number}",
            "fields": None,
        }
        | fields  # type: ignore[arg-type]
    )


def numbers(rows: Sequence[LogRow]) -> list[tuple[int, int]]:
    return [(row.attempt, row.number) for row in rows]


@pytest.fixture
def job_id() -> UUID:
    return new_id()


def test_a_batch_that_is_sent_twice_is_stored_once(store: Session, job_id: UUID) -> None:
    lines = [a_line(job_id, n, fields='{"n": 1}', step="s", source="shop") for n in range(1, 4)]
    for _ in range(2):
        store(logs.keep, lines, now=2.5)
    rows = store(logs.newest_of_job, job_id)
    assert numbers(rows) == [(1, 1), (1, 2), (1, 3)]
    assert (rows[0].step, rows[0].source, rows[0].fields) == ("s", "shop", {"n": 1})
    assert 2.4 < (rows[0].now - rows[0].at).total_seconds() < 60


def test_a_followed_log_shows_each_line_once_also_late_ones(store: Session, job_id: UUID) -> None:
    store(logs.keep, [a_line(job_id, n) for n in (1, 2)], now=0)
    rows = store(logs.newest_of_job, job_id, limit=1)
    assert numbers(rows) == [(1, 2)]
    place = LogPlace.parse(str(LogPlace().after(rows)))
    store(logs.keep, [a_line(job_id, 1, attempt=2), a_line(job_id, 3)], now=0)
    store(logs.keep, [a_line(new_id(), 9)], now=0)
    more = store(logs.of_job_after, job_id, place=place)
    assert numbers(more) == [(1, 3), (2, 1)]
    place = place.after(more)
    store(logs.keep, [a_line(job_id, 4), a_line(job_id, 2, attempt=2)], now=0)
    assert numbers(store(logs.of_job_after, job_id, place=place)) == [(1, 4), (2, 2)]
    assert numbers(store(logs.of_job_after, job_id, place=LogPlace(), limit=2)) == [(1, 1), (1, 2)]


@pytest.mark.parametrize("text", ["1", "x.1", "1.x", "-", "1.1-", "9999999999.1"])
def test_invalid_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        LogPlace.parse(text)


def test_lines_are_filtered_by_level_attempt_and_step(store: Session, job_id: UUID) -> None:
    levels = (Level.DEBUG, Level.WARNING, Level.ERROR)
    store(logs.keep, [a_line(job_id, n, level=each) for n, each in enumerate(levels, 1)], now=0)
    store(logs.keep, [a_line(job_id, 1, attempt=2, step="s")], now=0)
    assert numbers(store(logs.newest_of_job, job_id, least=Level.WARNING)) == [(1, 2), (1, 3)]
    assert numbers(store(logs.newest_of_job, job_id, attempt=2)) == [(2, 1)]
    assert numbers(store(logs.newest_of_job, job_id, step="s")) == [(2, 1)]
    assert numbers(store(logs.newest_of_job, job_id, before=(1, 3))) == [(1, 1), (1, 2)]


def test_all_jobs_are_followed_although_ids_become_visible_out_of_order(
    store: Session, database: str, job_id: UUID
) -> None:
    store(logs.keep, [a_line(job_id, 1)], now=0)
    tail = LogTail(store(logs.newest_id))
    store(logs.keep, [a_line(job_id, n) for n in (2, 3)], now=0)
    hidden = "UPDATE cortex.log_line SET level = $1 WHERE number = 2"
    sql(database, hidden, 10)  # as if its transaction had not ended
    assert numbers(store(tail.next, least=Level.INFO, limit=10, now=0.0)) == [(1, 3)]
    sql(database, hidden, 20)
    assert numbers(store(tail.next, least=Level.INFO, limit=10, now=1.0)) == [(1, 2)]
    assert store(tail.next, least=Level.INFO, limit=10, now=9.0) == []
    assert tail.after >= 3


def test_lines_that_are_not_wanted_are_read_past_once(store: Session, job_id: UUID) -> None:
    tail = LogTail(store(logs.newest_id))
    store(logs.keep, [a_line(job_id, n) for n in range(1, 6)], now=0)
    for now in (0.0, 1.0):
        assert store(tail.next, least=Level.ERROR, limit=10, now=now) == []
        assert tail.after == 0
    assert store(tail.next, least=Level.ERROR, limit=10, now=2.0) == []
    assert tail.after == store(logs.newest_id)
    store(logs.keep, [a_line(job_id, n, level=Level.ERROR) for n in range(6, 9)], now=0)
    found = [store(tail.next, least=Level.ERROR, limit=2, now=now) for now in (3.0, 9.0, 20.0)]
    assert [numbers(rows) for rows in found] == [[(1, 6), (1, 7)], [(1, 8)], []]


def test_warnings_of_all_jobs_are_found_and_page_by_page(store: Session, database: str) -> None:
    for n in range(1, 5):
        level = Level.ERROR if n % 2 else Level.INFO
        store(logs.keep, [a_line(new_id(), n, level=level)], now=0)
    rows = store(logs.page, least=Level.WARNING, since_s=60.0, limit=1)
    assert [row.number for row in rows] == [3]
    rows = store(logs.page, least=Level.WARNING, since_s=60.0, before=rows[0].id)
    assert [row.number for row in rows] == [1]
    assert len(store(logs.page, since_s=60.0)) == 4
    move_clock(database, 120)
    assert store(logs.page, since_s=60.0) == []


def test_old_lines_are_deleted_oldest_first(store: Session, database: str, job_id: UUID) -> None:
    store(logs.keep, [a_line(job_id, n) for n in (1, 2, 3)], now=0)
    assert store(logs.forget, kept_s=7200.0, limit=10) == 0
    move_clock(database, 7300)
    store(logs.keep, [a_line(job_id, 4)], now=0)
    assert store(logs.forget, kept_s=7200.0, limit=2) == 2
    assert store(logs.forget, kept_s=7200.0, limit=2) == 1
    assert numbers(store(logs.newest_of_job, job_id)) == [(1, 4)]
