"""The story of a job: one order of all events, and positions to continue from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.errors import UsageError
from cortex.domain.job_feed import START, EventKind, Happened, JobEvent, Position, events_after

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(second: float) -> str:
    return (NOON + timedelta(seconds=second)).isoformat()


def move(number: int, new: str, second: float, *, attempt: int = 1) -> dict[str, Any]:
    return {"id": number, "previous": None, "new": new, "attempt": attempt, "at": at(second)}


def step(seq: int, second: float) -> dict[str, Any]:
    return {
        "seq": seq,
        "kind": "step",
        "key": f"step{seq}",
        "attempt": 1,
        "finished_at": at(second),
    }


def ended(attempt: int, second: float) -> dict[str, Any]:
    return {"attempt": attempt, "outcome": "failed", "ended_at": at(second)}


def output(events: list[JobEvent]) -> list[str]:
    return [f"{each.kind.value} {each.position}" for each in events]


def test_events_of_all_kinds_come_in_one_order() -> None:
    happened = Happened(
        history=[move(7, "PENDING", 0, attempt=0), move(8, "RUNNING", 1), move(9, "COMPLETED", 9)],
        attempts=[ended(1, 4)],
        steps=[step(1, 2), step(2, 6)],
        claim={"attempt": 2, "at": at(5), "pod": "b"},
        is_ended=True,
    )
    assert output(events_after(START, happened)) == [
        "moved 7.0.0.0",
        "moved 8.0.0.1",
        "step 8.0.1.1",
        "attempt_ended 8.1.1.1",
        "claimed 8.1.1.2",
        "step 8.1.2.2",
        "moved 9.1.2.2",
    ]


def test_each_kind_of_event_keeps_its_order_despite_the_clock() -> None:
    happened = Happened(history=[move(1, "RETRY", 5), move(2, "RUNNING", 3)], steps=[step(1, 4)])
    ids = [each.position.history_id for each in events_after(START, happened)]
    assert ids == sorted(ids)


def test_ending_waits_for_unread_events() -> None:
    happened = Happened(
        history=[move(1, "COMPLETED", 3)], steps=[step(1, 1)], is_ended=True, is_complete=False
    )
    assert [each.kind for each in events_after(START, happened)] == [EventKind.STEP]
    assert not happened.is_over


def test_ending_comes_last_despite_an_early_clock() -> None:
    happened = Happened(history=[move(1, "CANCELLED", 1)], steps=[step(1, 2)], is_ended=True)
    events = events_after(START, happened)
    assert [each.is_ending for each in events] == [False, True]
    assert happened.is_over


def test_claim_already_in_the_history_appears_once() -> None:
    claim = {"attempt": 3, "at": at(2), "pod": "b"}
    happened = Happened(history=[move(4, "RUNNING", 2, attempt=3)], claim=claim)
    assert output(events_after(START, happened)) == ["moved 4.0.0.3"]


@given(st.tuples(*[st.integers(0, 2**31 - 1)] * 4))
def test_a_position_survives_its_text(numbers: tuple[int, int, int, int]) -> None:
    position = Position(*numbers)
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2.3", "1.2.3.4.5", "1.2.3.-4", "1.2.3.x", "1.2.3.٣", "1.2.3.2147483648", "9" * 99],
)
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no position"):
        Position.parse(text)
