"""The newest dead letters grouped by error, within the read limit."""

import pytest

from cortex.postgres.session import Session
from cortex.store import dead_letters
from cortex.store.dead_letters import KnownValues
from tests.support.records.dead_letters import fail, set_breaker
from tests.support.records.rows import move_clock


def test_errors_are_counted_within_the_read_limit(store: Session, database: str) -> None:
    fail(database, 3, error_message="it broke", error_source="llm:gpt")
    (other,) = fail(database, error_message="no page", error_code="not_found")
    set_breaker(database, "llm:gpt", "OPEN")
    newest, older = store(dead_letters.groups, looked_max=100, limit=10)
    assert (newest.job_id, newest.count, newest.breaker) == (other, 1, None)
    assert (older.count, older.breaker, older.is_all) == (3, "OPEN", True)
    assert older.first_at <= older.last_at <= newest.last_at
    cut = store(dead_letters.groups, looked_max=2, limit=10)
    assert [row.count for row in cut] == [1, 1]
    assert not cut[0].is_all
    assert len(store(dead_letters.groups, looked_max=100, limit=1)) == 1


def test_error_group_lists_the_letters_it_counted(store: Session, database: str) -> None:
    first, second, third = (fail(database)[0] for _ in range(3))
    fail(database, error_message="no page", error_code="not_found")
    (_, error) = store(dead_letters.groups, looked_max=100, limit=10)
    rows = store(dead_letters.newest_of, error.fingerprint, looked_max=100, limit=10)
    assert [row.job_id for row in rows.letters] == [third, second, first]
    assert rows.is_all
    found = store(dead_letters.newest_of, error.fingerprint, looked_max=2, limit=10)
    (cut,) = found.letters
    assert not found.is_all
    assert cut.job_id == third
    (settled,) = store(dead_letters.discard, [second], by="ana", reason="old")
    assert settled.error is None
    rows = store(dead_letters.newest_of, error.fingerprint, looked_max=100, limit=10)
    assert [row.job_id for row in rows.letters] == [third, first]


def test_truncated_groups_are_marked_incomplete(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(database, 2, error_message="page 9 is gone", submitted={"tenant": "old"})
    move_clock(database, 60)
    fail(database, 3, error_message="it is late", error_code="late")
    rows = store(dead_letters.groups, limit=10)
    assert [(row.count, row.is_all) for row in rows] == [(3, True), (2, True)]
    known = store(dead_letters.known)
    assert known["code"] == KnownValues(names=["job_failed", "late"], is_all=True)
    assert known["tenant"] == KnownValues(names=["default", "old"], is_all=True)
    monkeypatch.setattr(dead_letters, "LOOKED_MAX", 2)
    rows = store(dead_letters.groups, looked_max=4, limit=10)
    assert [(row.count, row.is_all) for row in rows] == [(3, False), (1, False)]
    known = store(dead_letters.known)
    assert (len(known["code"].names), known["code"].is_all) == (2, False)
    assert known["tenant"] == KnownValues(names=["default"], is_all=False)
