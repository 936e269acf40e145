"""Output of a model stays within bounds for people who watch for hours."""

import pickle
from uuid import UUID

import pytest

from cortex.domain.answer_text import AnswerPiece
from cortex_tui.model.stream import CHARS_MAX, Stream

TOKENS_A_SECOND = 200
SECONDS = 600


def a_piece(text: str, *, at: int) -> AnswerPiece:
    return AnswerPiece(
        job_id=UUID(int=1),
        attempt=1,
        key="1 plan",
        call=1,
        offset=at,
        end=at + len(text),
        text=text,
    )


@pytest.mark.parametrize("token", ["word ", "x", "\n"])
def test_stream_without_layout_stays_small(token: str) -> None:
    said = Stream()
    for number in range(SECONDS * TOKENS_A_SECOND):
        piece = a_piece(token, at=number * len(token))
        assert said.take(piece, now=number / TOKENS_A_SECOND)
    assert len(pickle.dumps(said)) < 4 * CHARS_MAX
    assert said.chars_a_second(SECONDS) == pytest.approx(TOKENS_A_SECOND * len(token), rel=0.1)
