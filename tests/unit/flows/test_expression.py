"""The expressions of flows: values, errors, and no reach beyond their scope."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex.flows.expression import CHARS_MAX, DEPTH_MAX, evaluate, parse, paths
from cortex.flows.functions import FUNCTIONS, ExpressionError
from cortex.flows.template import filled, has_expression

SCOPE: dict[str, Any] = {
    "inputs": {
        "name": "ana",
        "count": 3,
        "empty": "",
        "list": [1, 2, 3],
        "deep": {"a-b": [{"c": 1}]},
    },
    "steps": {"fetch": {"result": {"items": ["x", "y"], "total": 12.5, "none": None}}},
}


def value(text: str) -> Any:
    return evaluate(parse(text), SCOPE)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("'a\\'b\\n'", "a'b\n"),
        ('"ü"', "ü"),
        ("true", True),
        ("null", None),
        ("inputs.name", "ana"),
        ("inputs.deep.a-b[0].c", 1),
        ("inputs['name']", "ana"),
        ("inputs.list[-1]", 3),
        ("inputs.list[inputs.list[0]]", 2),
        ("steps.fetch.result.total > 12", True),
        ("1 == true", False),
        ("1 == 1.0", True),
        ("not inputs.empty", True),
        ("not not inputs.count", True),
        ("inputs.empty or 'x'", "x"),
        ("inputs.count and 'x'", "x"),
        ("1 == 2 or 3 < 4 and 'a' != 'b'", True),
        ("not (1 == 2) and true", True),
        ("'x' in steps.fetch.result.items", True),
        ("'name' in inputs", True),
        ("true in inputs.list", False),
        ("default(inputs.missing.deeper, 7)", 7),
        ("default(steps.fetch.result.none, 7)", 7),
        ("default(steps.fetch.result.none.deeper, 7)", 7),
        ("length(inputs.list)", 3),
        ("join(inputs.list, '-')", "1-2-3"),
        ("split('a,b', ',')", ["a", "b"]),
        ("number(' 12 ')", 12),
        ("parse_json('[1]') == range(2)", False),
        ("json(inputs.list)", "[1,2,3]"),
        ("first(inputs.list)", 1),
        ("last(split('', ','))", ""),
        ("range(3)", [0, 1, 2]),
        ("upper(trim(' a '))", "A"),
        ("keys(inputs.deep)", ["a-b"]),
        ("starts_with(inputs.name, 'an')", True),
        ("text(inputs.list)", "[1,2,3]"),
    ],
)
def test_expression_evaluates(text: str, expected: Any) -> None:
    found = value(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "empty"),
        ("1 +", "'\\+' is no part"),
        ("a b", "'b' at the wrong place"),
        ("(1", "ends too early, expected '\\)'"),
        ("inputs.", "ends too early"),
        ("first(inputs).a", "'.' at the wrong place"),
        ("inputs.1", "wrong place"),
        ("'a", "is no part"),
        ("'\\q'", "unknown escape"),
        ("open('x')", "unknown function 'open'"),
        ("length()", "takes 1 arguments, not 0"),
        ("1 < 2 < 3", "'<' at the wrong place"),
        ("1e5", "is no part"),
        ("9" * 16, "is no part"),
        ("x := 1", "is no part"),
        ("lambda: 1", "is no part|wrong place"),
        ("a" * (CHARS_MAX + 1), "2,001 characters"),
        ("(" * (DEPTH_MAX + 1) + "1" + ")" * (DEPTH_MAX + 1), "deeper than 32"),
        ("a[" * (DEPTH_MAX + 1) + "1" + "]" * (DEPTH_MAX + 1), "deeper than 32"),
        ("1 or " * 101 + "1", "more than 100 times 'or'"),
        ("not " * 400 + "(", "ends too early"),
        ("length(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1), "deeper than 32"),
    ],
)
def test_malformed_expression_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("env.HOME", "'env' is unknown here"),
        ("__import__", "'__import__' is unknown here"),
        ("inputs.__class__", "inputs has no '__class__'"),
        ("inputs.name.upper", "inputs.name is a text, and upper is no key"),
        ("inputs.list.append", "is a list, and append is no key"),
        ("inputs.list[3]", "has 3 items, none at 3"),
        ("inputs.list[true]", "is a list, and true is no key"),
        ("inputs.count.real", "is a number"),
        ("steps.fetch.result.none.x", "is null and has no x"),
        ("inputs.name < 1", "a text and a number cannot be compared"),
        ("true < 2", "cannot be compared"),
        ("1 in 2", "a number cannot contain a number"),
        ("default(nowhere, 1)", "'nowhere' is unknown"),
        ("range(10001)", "takes 0 to 10,000"),
        ("split('a', '')", "empty separator"),
        ("number('1e999')", "cannot read"),
        ("number('NaN')", "cannot read"),
        ("upper(1)", "takes a text, not a number"),
        ("join(range(10000), json(range(10000)))", "at most 262,144"),
        ("parse_json('[')", "cannot read this"),
    ],
)
def test_expression_reaches_nothing_outside_its_scope(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        value(text)


def test_every_function_is_documented() -> None:
    assert all(each.doc and each.counts[0] <= each.counts[1] for each in FUNCTIONS.values())


def test_paths_inside_of_paths_are_found() -> None:
    node = parse("not a.b[c.d] == length(f.g)")
    assert {each.root for each in paths(node)} == {"a", "c", "f"}


# --- templates


@pytest.mark.parametrize(
    "given_, expected",
    [
        ("${{ inputs.count }}", 3),
        (" ${{ inputs.list }} ", [1, 2, 3]),
        ("n=${{ inputs.count }}, ${{inputs.name}}", "n=3, ana"),
        ("${{ inputs.list }}!", "[1,2,3]!"),
        ("$${{ inputs.count }}", "${{ inputs.count }}"),
        ("no expression }}", "no expression }}"),
        ({"a": ["${{ inputs.name }}", 1]}, {"a": ["ana", 1]}),
        ({"${{ inputs.name }}": 1}, {"${{ inputs.name }}": 1}),
    ],
)
def test_values_are_filled_in(given_: Any, expected: Any) -> None:
    assert filled(given_, SCOPE) == expected


def test_a_place_without_end_is_refused() -> None:
    with pytest.raises(ExpressionError, match="has no"):
        filled("${{ inputs.name", SCOPE)


def test_a_large_value_cannot_be_multiplied() -> None:
    scope = {"steps": {"big": "x" * 300_000}}
    assert len(filled(["${{ steps.big }}"] * 3, scope)) == 3
    for template in (["${{ steps.big }}"] * 4, "${{ steps.big }}," * 4):
        with pytest.raises(ExpressionError, match="more than 1,048,576 bytes"):
            filled(template, scope)


# --- fuzzing

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | st.text(max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
PARTS = st.sampled_from(
    [
        *("inputs", "steps", "item", ".", "[", "]", "(", ")", ",", "==", "<", "in", "and", "or"),
        *("not", "true", "null", "1", "-1", "'a'", "__class__", "__globals__", "a-b", " "),
        *(f"{name}(" for name in FUNCTIONS),
    ]
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=30).map("".join) | st.text(max_size=60)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, inputs=JSON, item=JSON)
def test_any_text_is_a_value_of_json_or_an_error(text: str, inputs: Any, item: Any) -> None:
    scope = {"inputs": inputs, "steps": {"a": {"result": item}}, "item": item}
    began = time.process_time()
    try:
        found = evaluate(parse(text), scope)
    except ExpressionError:
        pass
    else:
        assert_json(found)
    assert time.process_time() - began < 2


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40) | TEXTS.map(lambda text: "${{" + text + "}}"), inputs=JSON)
def test_any_template_is_a_value_or_an_error(text: str, inputs: Any) -> None:
    try:
        assert_json(filled({"x": [text]}, {"inputs": inputs}))
    except ExpressionError:
        assert has_expression(text)


def assert_json(found: Any) -> None:
    assert type(found) in (dict, list, str, int, float, bool, type(None))
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for each in inner:
        assert_json(each)
