"""Edits are shown place by place, with their types, and with nothing hidden."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.argument_check import ArgumentChange, changes
from cortex.domain.canonical import canonical

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_no_changes_means_equal_arguments(old: Any, new: Any) -> None:
    assert (changes(old, new) == []) == (canonical(old) == canonical(new))


@pytest.mark.parametrize(
    "old, new, output",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", "1", "2")]),
        ({"a": 1}, {"a": 1.0}, [("a", "1", "1.0")]),
        ({"a": 1}, {"a": True}, [("a", "1", "true")]),
        ({"a": "1"}, {"a": 1}, [("a", '"1"', "1")]),
        ({"a": None}, {}, [("a", "null", None)]),
        ({}, {"a": None}, [("a", None, "null")]),
        ({"a": [1, 2, 3]}, {"a": [1, 5]}, [("a[1]", "2", "5"), ("a[2]", "3", None)]),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": {}}}, [("a.y", None, "{}")]),
        ({"a": {}}, {"a": []}, [("a", "{}", "[]")]),
        (1, 2, [("(all)", "1", "2")]),
        (
            {"to": "ana"},
            {"to": "an\u202ea\u200b\n\x1b"},
            [("to", '"ana"', '"an⟦U+202E⟧a⟦U+200B⟧\\n\\u001b"')],
        ),
        ({}, {"a\u202e": 1}, [('["a⟦U+202E⟧"]', None, "1")]),
    ],
)
def test_each_change_has_its_place_and_both_sides(
    old: Any, new: Any, output: list[tuple[str, str | None, str | None]]
) -> None:
    expected = [ArgumentChange(field=field, old=was, new=now) for field, was, now in output]
    assert changes(old, new) == expected
