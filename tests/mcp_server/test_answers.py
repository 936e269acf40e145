"""Documents as tools return them: exact numbers, cut texts, nothing that JSON cannot hold."""

import json
import time

import pytest

from cortex.http.mcp import answers
from cortex.http.mcp.answers import CHARS_MAX, EXACT_CHARS_MAX, TooLongError, error_line, shown

DIGITS = '{"rows":[{"a":12345678901234567890123,"b":0.1000000000000000055511151231257827,"x":1}]}'


def test_numbers_keep_each_digit_when_fields_are_hidden() -> None:
    assert shown(DIGITS) == DIGITS
    assert shown(DIGITS, hides={"x"}) == DIGITS.replace(',"x":1', "")


def test_cut_texts_say_how_much_is_missing_and_numbers_stay() -> None:
    text = json.dumps({"text": "ä" * 50_000, "short": "ok"})[:-1] + ',"n":1e400}'
    found = shown(text)
    assert len(found) <= CHARS_MAX
    assert found.endswith('"short":"ok","n":1e400}')
    assert "… (46,000 more characters)" in found


def test_half_a_surrogate_pair_is_shown_as_text() -> None:
    found = shown('{"rows":[{"a":"\\ud800","x":1}]}', hides={"x"})
    assert json.loads(found) == {"rows": [{"a": "\\ud800"}]}


def test_exact_documents_are_whole_or_refused() -> None:
    whole = json.dumps({"text": "x" * (EXACT_CHARS_MAX - 20)})
    assert shown(whole, is_exact=True) == whole
    with pytest.raises(TooLongError, match="more than 200,000"):
        shown(json.dumps({"text": "x" * EXACT_CHARS_MAX}), is_exact=True)


@pytest.mark.parametrize(
    "text, expected",
    [
        (json.dumps({f"key {n}": n for n in range(9_000)}), "more than 40,000"),
        ("[" * 50_000 + "]" * 50_000, "nested too deep"),
    ],
)
def test_a_document_that_cannot_be_cut_is_refused_with_a_way_out(text: str, expected: str) -> None:
    with pytest.raises(TooLongError, match=expected) as caught:
        shown(text)
    assert caught.value.hint is not None
    assert "`cortex` command" in caught.value.hint


def test_large_documents_of_rare_letters_are_cut_before_they_are_escaped() -> None:
    began = time.process_time()
    assert len(shown(json.dumps({"text": "\u202e" * 2_000_000}, ensure_ascii=False))) <= CHARS_MAX
    assert time.process_time() - began < 1.0


def test_an_error_is_one_line_of_bounded_length() -> None:
    line = error_line("usage", "a\nb\x1b[2J\u202e" + "x" * 9_999, "do\nthis")
    assert line.isprintable()
    assert len(line) < answers.ERROR_CHARS_MAX + 100
