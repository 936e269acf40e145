"""Canonical JSON: one text for one value, nothing repaired, nothing merged."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.canonical import DEPTH_MAX, DIGITS_MAX, canonical, digest, parse
from cortex.domain.errors import InvalidValueError

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


def typed(value: Any) -> Any:
    """The value with the type of each part beside it: to Python 1, 1.0 and True are one."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (type(value), repr(value))


@given(values)
def test_canonical_json_round_trips(value: Any) -> None:
    text = canonical(value)
    assert typed(parse(text)) == typed(value)
    assert canonical(parse(text)) == text
    assert text.encode().decode() == text


@given(values, values)
def test_one_text_is_one_value(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (typed(one) == typed(other))


def test_canonical_form_is_sorted_and_compact() -> None:
    value = {"b": [1, 1.0, True, None, "ü\n\u2028"], "a": {"z": -0.0, "B": 10**30}}
    text = '{"a":{"B":1000000000000000000000000000000,"z":-0.0},"b":[1,1.0,true,null,"ü\\n\u2028"]}'
    assert canonical(value) == text
    assert digest(text) == hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize(
    "value, output",
    [
        (float("nan"), "arguments is nan, which JSON does not have"),
        ({"a": [float("-inf")]}, "arguments: a[0] is -inf, which JSON does not have"),
        ({"a": "x\0"}, "arguments: a holds a NUL character, which Postgres cannot store"),
        ({"a\0": 1}, 'arguments: ["a\\u0000"] holds a NUL character'),
        ({"a": "\ud800"}, "arguments: a holds half of a surrogate pair"),
        ({1: 2}, "arguments has the key 1, but JSON keys are text"),
        ({"a": {1, 2}}, "arguments: a is set, which JSON has no form for"),
        (b"x", "arguments is bytes, which JSON has no form for"),
        (10**DIGITS_MAX, "arguments is a number of more than 1,000 digits"),
        (-(10**DIGITS_MAX), "arguments is a number of more than 1,000 digits"),
    ],
)
def test_unstorable_value_is_refused(value: Any, output: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        canonical(value)
    assert caught.value.message.startswith(output)


def test_nesting_has_a_bound() -> None:
    value: Any = 1
    for _ in range(DEPTH_MAX):
        value = [value]
    assert parse(canonical(value)) == value
    with pytest.raises(InvalidValueError, match="is nested deeper than 64 levels"):
        canonical([value])
    for text in (json.dumps([value]), "[" * 100_000):
        with pytest.raises(InvalidValueError, match="deeper than 64 levels"):
            parse(text)


@pytest.mark.parametrize(
    "text, output",
    [
        ("{'a': 1}", "edit is not JSON at line 1, column 2: Expecting property name"),
        ('{"a": 1,\n "a": 2}', "edit has the key 'a' twice"),
        ('{"x": {"a": 1, "b": 1, "a": 1}}', "edit has the key 'a' twice"),
        ("[NaN]", r"edit: \[0\] is nan"),
        ("-Infinity", "edit is -inf"),
        ("1e999", "edit is inf"),
        ('"\\u0000"', "edit holds a NUL"),
        ('"\\ud800"', "edit holds half"),
        ("9" * 100_000, "edit is a number of more than 1,000 digits"),
        ("", "edit is not JSON"),
        ("1 2", "edit is not JSON at line 1, column 3: Extra data"),
    ],
)
def test_invalid_json_is_refused(text: str, output: str) -> None:
    with pytest.raises(InvalidValueError, match=output):
        parse(text, what="edit")
