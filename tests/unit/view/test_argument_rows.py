"""Arguments as rows: each value has one, and nothing in it is hidden."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.safe import safe
from cortex.view.arguments import (
    LONG_CHARS,
    argument_rows,
    hidden_count,
    marked_json,
    visible_json,
)

STORABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | STORABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE, inner, max_size=4),
    max_leaves=20,
)


def leaf_count(value: Any) -> int:
    if isinstance(value, dict | list) and value:
        items = value.values() if isinstance(value, dict) else value
        return sum(map(leaf_count, items))
    return 1


def shown(value: Any) -> list[tuple[str, str]]:
    return [(row.field, row.value) for row in argument_rows(value)]


def test_each_value_has_a_row_with_its_path() -> None:
    value = {"to": {"name": "cus_88", "tags": ["a", {"b": None}]}, "n": 1.0, "e": [], "o": {}}
    assert shown(value) == [
        ("to.name", "cus_88"),
        ("to.tags[0]", "a"),
        ("to.tags[1].b", "null"),
        ("n", "1.0"),
        ("e", "[]"),
        ("o", "{}"),
    ]
    assert [row.is_text for row in argument_rows(value)][:3] == [True, True, False]


def test_no_arguments_have_no_row() -> None:
    assert argument_rows({}) == []


def test_text_keeps_its_lines_and_shows_hidden_characters() -> None:
    (row,) = argument_rows({"me\u200bmo": "pay\n\u202etxt\x1b[2J"})
    assert (row.field, row.value) == ('["me⟦U+200B⟧mo"]', "pay\n⟦U+202E⟧txt⟦U+001B⟧[2J")
    assert row.hidden_count == 3


@pytest.mark.parametrize("text", ["a⟦U+202E⟧b", "plain", "naïve 日本語", "👩\u200d💻", "a\nb\tc"])
def test_visible_characters_are_not_counted_as_hidden(text: str) -> None:
    assert hidden_count(text) == 0


def test_long_values_are_marked() -> None:
    rows = argument_rows({"a": "x" * LONG_CHARS, "b": "x" * (LONG_CHARS + 1), "c": "x\n" * 8})
    assert [row.is_long for row in rows] == [False, True, True]


@given(st.dictionaries(STORABLE, VALUES, min_size=1))
def test_no_value_is_left_out_and_all_are_harmless(value: dict[str, Any]) -> None:
    rows = argument_rows(value)
    assert len(rows) == leaf_count(value)
    for row in rows:
        assert safe(row.value, newline="\n") == row.value
        assert safe(row.field) == row.field


@given(VALUES)
def test_editable_json_hides_nothing_and_round_trips(value: Any) -> None:
    text = visible_json(value)
    assert json.loads(text) == value
    assert all(safe(char) == char for char in text if char != "\n")


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\u00a0", " \n"], ids=ascii)
def test_on_one_line_many_blanks_are_counted(blank: str) -> None:
    text = f"pay{blank * 300}amount: 5"
    assert marked_json({"memo": text}) == f'{{"memo":"pay⟦{300 * len(blank)} blanks⟧amount: 5"}}'
    assert marked_json("a b") == '"a b"'
