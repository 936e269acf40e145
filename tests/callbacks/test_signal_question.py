"""The question of the terminal UI for a signal: only a name, JSON and `y` agree."""

import pytest

from cortex_tui.model.question import KeyAnswer
from cortex_tui.model.signalling import SignalQuestion

WAITED = "payment"


def typed(question: SignalQuestion, *keys: str) -> KeyAnswer:
    """Press keys, letters as what they write; return the last answer."""
    answer = KeyAnswer.NONE
    for key in keys:
        assert answer is KeyAnswer.NONE
        answer = question.press(key, key if len(key) == 1 else None)
    return answer


def test_a_name_and_json_are_typed_then_agreed() -> None:
    question = SignalQuestion("digest …000001")
    assert question.text == "send a signal to digest …000001"
    assert typed(question, *"paid", "enter", *'{"a": 1}') is KeyAnswer.NONE
    assert not question.may_agree("y")
    assert typed(question, "enter") is KeyAnswer.NONE
    assert question.text == "send signal paid to digest …000001"
    assert question.how() == '  {"a": 1}  y yes   esc no '
    assert question.may_agree("y")
    assert typed(question, "n", "enter", "Y", "y") is KeyAnswer.YES
    assert (question.name, question.payload) == ("paid", '{"a":1}')


def test_the_signal_that_the_job_waits_for_is_offered() -> None:
    question = SignalQuestion("x", name=WAITED)
    assert question.how() == "  name: payment▏ enter   esc no "
    assert typed(question, "enter", "enter", "y") is KeyAnswer.YES
    assert (question.name, question.payload) == (WAITED, "null")


@pytest.mark.parametrize("data", ["{", "x", "NaN", "'x'", '"\\u0000"'])
def test_text_that_is_no_json_cannot_be_agreed(data: str) -> None:
    question = SignalQuestion("x", name=WAITED)
    assert typed(question, "enter", *data, "enter", "y") is KeyAnswer.NONE
    assert not question.may_agree("y")
    keys = (*data, "backspace")
    assert typed(question, "ctrl+u", *"1", "enter", "y") is KeyAnswer.YES, keys
    assert question.payload == "1"


def test_a_name_is_needed_and_text_of_others_is_harmless() -> None:
    question = SignalQuestion("x")
    assert typed(question, "enter") is KeyAnswer.NONE
    assert "a name such as payment" in question.how()
    hostile = SignalQuestion("x", name="\x1b[31m\u202e")
    assert not {"\x1b", "\u202e"} & set(hostile.how())
    assert typed(hostile, "enter", "enter") is KeyAnswer.NONE
    assert not hostile.may_agree("y"), "no job can receive that"


def test_backspace_leads_back_and_esc_declines() -> None:
    question = SignalQuestion("x", name=WAITED)
    assert typed(question, "enter", "1", "enter", "backspace") is KeyAnswer.NONE
    assert question.how() == "  JSON: 1▏ enter   esc no "
    assert typed(question, "backspace", "backspace") is KeyAnswer.NONE
    assert question.how().startswith("  name: payment")
    assert typed(question, "escape") is KeyAnswer.NO
