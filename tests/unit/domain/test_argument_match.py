"""Patterns for arguments, and their third answer: undecidable."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.approvals.rules import matches, refusal

ARGUMENTS = {
    "to": "ana@example.com",
    "amount": 500,
    "share": 0.5,
    "urgent": True,
    "zone": None,
    "order": {"lines": [{"price": 9}]},
    "endless": float("inf"),
}


@pytest.mark.parametrize(
    "path, pattern, answer",
    [
        ("to", "ana@example.com", True),
        ("to", "*@example.com", True),
        ("to", "*@EXAMPLE.com", False),
        ("to", "bob@*", False),
        ("to", 5, None),
        ("to", True, None),
        ("to", None, False),
        ("zone", None, True),
        ("zone", "eu", None),
        ("gone", "x", None),
        ("gone", None, None),
        ("amount", 500, True),
        ("amount", 500.0, True),
        ("amount", 501, False),
        ("amount", "500", None),
        ("amount", "*", None),
        ("amount", True, None),
        ("urgent", True, True),
        ("urgent", False, False),
        ("urgent", 1, None),
        ("order.lines.0.price", 9, True),
        ("order.lines", "*", None),
        ("amount", {"gt": 499}, True),
        ("amount", {"gt": 500}, False),
        ("amount", {"ge": 500, "lt": 501}, True),
        ("amount", {"ge": 500, "lt": 500}, False),
        ("amount", {"le": 500.0}, True),
        ("share", {"gt": 0.1}, True),
        ("urgent", {"ge": 0}, None),
        ("endless", {"gt": 1}, None),
        ("endless", 1, None),
        ("to", {"gt": 1}, None),
        ("gone", {"gt": 1}, None),
        ("to", {"not": "*@example.com"}, False),
        ("to", {"not": "*@example.org"}, True),
        ("to", {"not": 5}, None),
        ("gone", {"not": "x"}, None),
        ("zone", {"not": None}, False),
        ("to", {"not": None}, True),
        ("to", {"in": ["bob", "ana@*"]}, True),
        ("to", {"in": ["bob", "eve"]}, False),
        ("to", {"in": [None, "eve"]}, False),
        ("to", {"in": [5, "ana@*"]}, True),
        ("to", {"in": [5, "eve"]}, None),
        ("gone", {"in": [None]}, None),
    ],
)
def test_pattern_gives_true_false_or_undecided(
    path: str, pattern: Any, answer: bool | None
) -> None:
    assert refusal(path, pattern) is None
    assert matches({path: pattern}, ARGUMENTS) is answer


@pytest.mark.parametrize(
    "patterns, answer",
    [
        ({}, True),
        ({"to": "ana*", "amount": {"gt": 5}}, True),
        ({"to": "ana*", "gone": 1}, None),
        ({"to": "bob*", "gone": 1}, False),
        ({"gone": 1, "to": "bob*"}, False),
    ],
)
def test_all_patterns_must_hold(patterns: dict[str, Any], answer: bool | None) -> None:
    assert matches(patterns, ARGUMENTS) is answer


@pytest.mark.parametrize(
    "path, pattern, output",
    [
        ("", 1, "is no path to an argument"),
        ("a..b", 1, "is no path to an argument"),
        ("a", [1], "must be text, a number, true, false, null or a comparison, got [1]"),
        ("a", float("nan"), "must be text, a number, true, false, null or a comparison, got nan"),
        ("a", "\0", "must be text, a number, true, false, null or a comparison, got '\\x00'"),
        ("a", {}, "compares with nothing; known: gt, ge, lt, le, not, in"),
        ("a", {"eq": 1}, "has the unknown comparison 'eq'; known: gt, ge, lt, le, not, in"),
        ("a", {"gt": 1, "b": 2}, "has the unknown comparison 'b'; known: gt, ge, lt, le, not, in"),
        ("a", {"gt": "5"}, "has gt, which must be a number, got '5'"),
        ("a", {"le": True}, "has le, which must be a number, got True"),
        ("a", {"not": {"gt": 1}}, "has not, which must be text, a number, true, false, null, got"),
        ("a", {"in": []}, "has in, which must be a list of text, a number, true, false, null, got"),
        ("a", {"in": "ab"}, "has in, which must be a list of text"),
        ("a", {"in": [[1]]}, "has in, which must be a list of text"),
    ],
)
def test_invalid_pattern_is_refused(path: str, pattern: Any, output: str) -> None:
    assert (refusal(path, pattern) or "").startswith(output)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(), scalars, max_size=2)


@given(
    pattern=values | st.dictionaries(st.sampled_from(["gt", "le", "not", "in"]), values),
    value=values,
)
def test_valid_pattern_always_gives_an_answer(pattern: Any, value: Any) -> None:
    if refusal("a", pattern) is None:
        assert matches({"a": pattern}, {"a": value}) in (True, False, None)


@given(pattern=scalars, value=values)
def test_not_inverts_an_answer_and_keeps_undecided(pattern: Any, value: Any) -> None:
    plain = matches({"a": pattern}, {"a": value})
    turned = matches({"a": {"not": pattern}}, {"a": value})
    assert turned is (None if plain is None else not plain)
