"""Text of a model on its way to a watcher: cut, packed, lost, repeated, reassembled."""

import json
from collections.abc import Iterable
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.answer_text import (
    PAYLOAD_BYTES_MAX,
    AnswerPiece,
    AnswerReader,
    PollHint,
    messages_of,
    payloads,
)

JOB = UUID(int=7)
STORABLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def a_piece(
    offset: int, text: str, *, attempt: int = 1, key: str = "ask", call: int = 1
) -> AnswerPiece:
    return AnswerPiece(
        job_id=JOB,
        attempt=attempt,
        key=key,
        call=call,
        offset=offset,
        end=offset + len(text),
        text=text,
    )


def shown(reader: AnswerReader, pieces: Iterable[AnswerPiece]) -> list[tuple[int, str, int]]:
    """(offset, text, missing) of each piece read."""
    new = [reader.take(each) for each in pieces]
    return [(each.offset, each.text, each.missing) for each in new if each is not None]


@given(st.lists(st.tuples(STORABLE, st.integers(1, 60)), max_size=8))
def test_packed_pieces_unpack_completely(texts: list[tuple[str, int]]) -> None:
    sent = [
        a_piece(0, text * times, key=f"step {number}") for number, (text, times) in enumerate(texts)
    ]
    packed = payloads([*sent, PollHint(JOB)])
    assert all(len(each.encode()) <= PAYLOAD_BYTES_MAX for each in packed)
    messages = [message for each in packed for message in messages_of(each)]
    assert messages[-1] == PollHint(JOB)
    for piece in sent:
        parts = [
            each for each in messages if isinstance(each, AnswerPiece) and each.key == piece.key
        ]
        assert "".join(each.text for each in parts) == piece.text
        assert [each.offset for each in parts] == [0, *(each.end for each in parts[:-1])]
        assert parts[-1].end == piece.end


@pytest.mark.parametrize("text", ["x" * 20_000, "ß\x01" * 9_000, "🙂" * 5_000, '"' * 9_000])
def test_long_text_is_cut_into_few_payloads(text: str) -> None:
    packed = payloads([a_piece(0, text, key="k" * 500)])
    assert all(len(each.encode()) <= PAYLOAD_BYTES_MAX for each in packed)
    assert len(packed) <= 1.3 * len(json.dumps(text, ensure_ascii=False).encode()) / 7_000 + 1


def test_small_pieces_share_a_payload() -> None:
    pieces = [a_piece(0, "word", key=f"step {number}") for number in range(50)]
    assert len(payloads(pieces)) == 1


@pytest.mark.parametrize("payload", ["", "{", "7", "[7]", "[[]]", '[["x"]]', '[["x", 1]]', "null"])
def test_other_payloads_are_refused(payload: str) -> None:
    with pytest.raises(ValueError, match="not a message of a stream"):
        messages_of(payload)


def test_pieces_in_order_come_out_as_they_are() -> None:
    assert shown(AnswerReader(), [a_piece(0, "one "), a_piece(4, "two")]) == [
        (0, "one ", 0),
        (4, "two", 0),
    ]


def test_a_lost_piece_is_a_gap() -> None:
    assert shown(AnswerReader(), [a_piece(0, "one "), a_piece(9, "on")])[1:] == [(9, "on", 5)]


def test_text_already_received_is_left_out() -> None:
    reader = AnswerReader()
    pieces = [a_piece(0, "one "), a_piece(0, "one "), a_piece(0, "one two"), a_piece(2, "e ")]
    assert shown(reader, pieces) == [(0, "one ", 0), (4, "two", 0)]


def test_late_reader_receives_the_beginning_when_it_is_sent() -> None:
    reader = AnswerReader()
    late = [a_piece(8, "three"), a_piece(0, "one two "), a_piece(8, "three"), a_piece(13, "!")]
    assert shown(reader, late) == [
        (8, "three", 8),
        (0, "one two ", 0),
        (8, "three", 0),
        (13, "!", 0),
    ]


def test_repeated_call_replaces_the_text_of_the_one_before() -> None:
    reader = AnswerReader()
    pieces = [a_piece(0, "wrong"), a_piece(0, "right", call=2), a_piece(5, "er")]
    assert shown(reader, pieces) == [(0, "wrong", 0), (0, "right", 0)]


def test_a_later_attempt_silences_those_before() -> None:
    reader = AnswerReader()
    pieces = [a_piece(0, "old"), a_piece(0, "new", attempt=2), a_piece(3, "er", call=9)]
    assert shown(reader, pieces) == [(0, "old", 0), (0, "new", 0)]


def test_committed_step_ends_its_text() -> None:
    reader = AnswerReader()
    assert shown(reader, [a_piece(0, "one")])
    reader.committed("ask")
    assert shown(reader, [a_piece(3, "two"), a_piece(0, "x", call=2)]) == []
    assert shown(reader, [a_piece(0, "one", key="ask#2")])


def test_several_answers_at_once_do_not_disturb_each_other() -> None:
    pieces = [a_piece(0, "a"), a_piece(0, "b", key="other"), a_piece(1, "c"), a_piece(1, "d")]
    assert shown(AnswerReader(), pieces) == [(0, "a", 0), (0, "b", 0), (1, "c", 0)]


def test_text_in_which_something_was_replaced_keeps_its_offsets() -> None:
    reader = AnswerReader()
    hidden = attrs.evolve(a_piece(0, "x" * 10), text="[secret KEY, 10 characters]")
    assert shown(reader, [hidden, a_piece(10, " ok")]) == [
        (0, "[secret KEY, 10 characters]", 0),
        (10, " ok", 0),
    ]
