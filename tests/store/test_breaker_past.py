"""The recent history of breakers, from the facts."""

import pytest

from cortex.domain.breaker import Past
from cortex.domain.failure import Failure, FailureClass
from cortex.postgres.session import Session
from cortex.store import breakers, facts
from cortex.store.breakers import past, with_past
from cortex.store.facts import Fact
from tests.support.records.rows import move_clock

NAME = "llm:m"
BUSY = Failure(cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy")


def fail(store: Session, times: int = 1) -> None:
    for _ in range(times):
        store(breakers.failed, NAME, failure=BUSY, requests=1, probe=None)


def note(store: Session, *messages: str, source: str = NAME, cls: str = "TRANSIENT_APP") -> None:
    for message in messages:
        data = {"class": cls, "message": message}
        store(facts.append, [Fact(type="error", subtype="overloaded", source=source, data=data)])


def test_breaker_turns_are_ordered_with_their_previous_state(database: str, store: Session) -> None:
    fail(store, 3)
    move_clock(database, 60)
    store(breakers.close, NAME, by="ana", reason="it is well")
    store(breakers.force_open, "tool:x", by="ana", reason="no")
    known = store(past, [NAME, "tool:x", "http:none"])
    turns = [(turn.before, turn.after) for turn in known[NAME].turns]
    assert turns == [("CLOSED", "OPEN"), ("OPEN", "CLOSED")]
    first, second = (turn.at for turn in known[NAME].turns)
    assert 59 < (second - first).total_seconds() < 90
    assert [turn.after for turn in known["tool:x"].turns] == ["OPEN"]
    assert known["http:none"] == Past()
    move_clock(database, 60 + 3600 + 60)
    assert store(past, [NAME])[NAME].turns == ()


def test_past_holds_the_last_three_counted_errors(store: Session) -> None:
    note(store, "one", "two", "three", "four")
    note(store, "not its own", source="llm:other")
    note(store, "says nothing of it", cls="PERMANENT")
    assert [error.message for error in store(past, [NAME])[NAME].errors] == [
        "four",
        "three",
        "two",
    ]
    assert store(past, [NAME])[NAME].errors[0].code == "overloaded"


def test_later_successes_do_not_hide_the_errors_that_opened_a_breaker(
    database: str, store: Session
) -> None:
    fail(store, 3)
    note(store, "one", "two", "three")
    move_clock(database, 60)
    store(facts.append, [Fact(type="cost", subtype="model_call", source=NAME)] * 1_000)
    found = [error.message for error in store(past, [NAME])[NAME].errors]
    assert found == ["three", "two", "one"]


def test_truncated_past_names_since_when_it_is_complete(
    store: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(store, 3)
    monkeypatch.setattr(breakers, "CHANGES_EACH_MAX", 2)
    assert store(past, [NAME])[NAME].known_since is None
    store(breakers.close, NAME, by="ana", reason="it is well")
    known = store(past, [NAME])[NAME]
    assert known.known_since == known.turns[0].at


def test_rows_get_their_past_and_no_rows_need_no_statement(store: Session) -> None:
    fail(store, 3)
    (row,) = store(with_past, store(breakers.page))
    assert row.past is not None
    assert (row.state, len(row.past.turns)) == ("OPEN", 1)
    assert store(past, []) == {}
