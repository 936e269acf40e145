"""Text of a model so far, for clients that watch it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.job import StepKind
from cortex.durable.progress import (
    ANSWER_CHARS_MAX,
    LATEST_CHARS_MAX,
    PartialAnswer,
    Progress,
)


def said(*pieces: str) -> PartialAnswer:
    answer = PartialAnswer()
    take = answer.begin()
    for piece in pieces:
        take(piece)
    return answer


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio.current_time", lambda: 0.0)


@given(st.lists(st.text(max_size=9), max_size=9), st.data())
def test_any_part_of_the_answer_can_be_read(pieces: list[str], data: st.DataObject) -> None:
    answer, whole = said(*pieces), "".join(pieces)
    offset = data.draw(st.integers(0, len(whole)))
    assert answer.length == len(whole)
    assert answer.since(offset) == ([(offset, whole[offset:])] if whole[offset:] else [])


def test_long_answer_keeps_its_beginning_and_its_latest_part() -> None:
    answer = said(*(f"{n:9d} " for n in range(20_000)))
    (at, beginning), (latest_at, latest) = answer.since(0)
    assert (at, len(beginning)) == (0, ANSWER_CHARS_MAX)
    assert answer.text == beginning
    assert latest.endswith("    19999 ")
    assert latest_at + len(latest) == answer.length == 200_000
    assert LATEST_CHARS_MAX <= len(latest) < LATEST_CHARS_MAX + 10
    assert answer.since(199_995) == [(199_995, "9999 ")]


def test_beginning_and_latest_part_join_without_a_seam() -> None:
    answer = said("x" * (ANSWER_CHARS_MAX - 1), "ab", "c")
    assert answer.since(ANSWER_CHARS_MAX - 2) == [(ANSWER_CHARS_MAX - 2, "xabc")]


def test_oversized_piece_does_not_grow_the_kept_text() -> None:
    answer = said("x" * 10 * ANSWER_CHARS_MAX)
    kept = sum(len(text) for _, text in answer.since(0))
    assert kept == ANSWER_CHARS_MAX + LATEST_CHARS_MAX


def test_repeated_call_starts_a_new_answer_with_a_new_number() -> None:
    answer = said("one")
    first = answer.call
    answer.begin()("two")
    assert answer.call > first
    assert answer.since(0) == [(0, "two")]
    assert said().call > answer.call


def test_progress_lists_only_steps_with_model_text() -> None:
    progress = Progress(0, None)
    silent, speaking = (progress.begin(StepKind.MODEL, key, now=0.0) for key in ("a", "b"))
    silent.answer.begin()
    speaking.answer.begin()("hello")
    progress.begin(StepKind.TOOL, "c", now=0.0)
    assert [key for key, _ in progress.answers] == ["b"]
    progress.end(speaking)
    assert progress.answers == []
