"""Edited arguments against a stored schema: the same answer as the tool's own check gives."""

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cortex.agent.tools.input_schema import object_schema
from cortex.domain.argument_check import CodeArguments, Misfit, misfits, payload_misfit
from cortex.durable.json_schema import Schema
from cortex.durable.structuring import MisfitError, structure


class Colour(Enum):
    RED = "red"
    ONE = 1


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


LEAVES: tuple[Any, ...] = (
    *(str, int, float, bool, NoneType, Path, UUID, date, datetime, object, Any),
    *(Colour, Size, Literal["a", "b"], Literal[1, "a"], list, dict, Literal[True]),
)


def wrapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda each: GenericAlias(list, (each,))),
        inner.map(lambda each: GenericAlias(Sequence, (each,))),
        inner.map(lambda each: GenericAlias(tuple, (each, ...))),
        inner.map(lambda each: GenericAlias(dict, (str, each))),
        inner.map(lambda each: GenericAlias(Mapping, (str, each))),
        inner.filter(_can_be_in_a_union).map(lambda each: each | None),
        st.tuples(inner, inner).filter(lambda two: all(map(_can_be_in_a_union, two))).map(_union),
        classes(inner),
    )


def _can_be_in_a_union(hint: Any) -> bool:
    return hint is not Any


def _union(two: tuple[Any, Any]) -> Any:
    return two[0] | two[1]


@st.composite
def classes(draw: st.DrawFn, hints: st.SearchStrategy[Any]) -> type:
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        default = draw(st.sampled_from([attrs.NOTHING, None, 3]))
        fields[name] = attrs.field(type=draw(hints), default=default, kw_only=True)
    return attrs.make_class("Made", fields, frozen=True)


hints = st.recursive(st.sampled_from(LEAVES), wrapped, max_leaves=4)

TEXTS = (
    "",
    "a",
    "red",
    "s",
    "2026-01-31",
    "20260131",
    "2026-01-31T12:00:00Z",
    "{" + "0" * 32 + "}",
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from([0.0, 1.0, 1.5, 10**400, *TEXTS, str(UUID(int=7)), "x\0", "\ud800"])
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=3)
    ),
    max_leaves=4,
)


def near(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that fit a schema, with junk here and there."""
    return st.one_of(_fitting(schema), _fitting(schema), _fitting(schema), junk)


def _fitting(schema: Schema) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([near(each) for each in schema["anyOf"]])
    if schema.get("type") == "array":
        return st.lists(near(schema["items"]), max_size=2)
    if schema.get("type") == "object" and "properties" in schema:
        required = {name: near(schema["properties"][name]) for name in schema["required"]}
        others = {name: near(each) for name, each in schema["properties"].items()}
        rest = {name: each for name, each in others.items() if name not in required}
        return st.fixed_dictionaries(required, optional=rest)
    if schema.get("type") == "object":
        return st.dictionaries(st.sampled_from("xy"), near(schema["additionalProperties"]))
    return scalars


def accepts(target: type, value: Any) -> bool:
    try:
        structure(value, target)
    except MisfitError:
        return False
    return True


@st.composite
def classes_and_values(draw: st.DrawFn) -> tuple[type, Any]:
    made = draw(classes(hints))
    return made, draw(near(object_schema(made)))


@attrs.frozen
class Whole:
    a: float


@attrs.frozen
class Choice:
    a: Literal[1, "a"]


@settings(max_examples=25)  # each makes a class, which takes time
@given(classes_and_values())
@example((Whole, {"a": 10**400}))
@example((Whole, {"a": True}))
@example((Whole, {"a": 1, "b": 1}))
@example((Choice, {"a": 1}))
@example((Choice, {"a": 1.0}))
@example((Choice, {"a": True}))
def test_misfits_accept_exactly_the_tools_own_values(made: tuple[type, Any]) -> None:
    target, value = made
    schema = json.loads(json.dumps(object_schema(target)))  # as it comes back from the record
    assert (misfits(schema, value) == []) == accepts(target, value)


@attrs.frozen
class Item:
    name: str
    count: int = 1
    price: float | None = None


@attrs.frozen
class Order:
    to: str
    items: list[Item]
    colour: Literal["red", "blue"] = "red"
    id: UUID | None = None
    day: date = date(2026, 1, 1)
    labels: dict[str, bool] = attrs.field(factory=dict)
    width: int | str | None = None


def item(**more: Any) -> dict[str, Any]:
    return {"items": [{"name": "a", **more}]}


FITTING: dict[str, Any] = {"to": "x", "items": [{"name": "a", "count": 2}]}


@pytest.mark.parametrize(
    "changed, field, reason",
    [
        ({"to": 5}, "to", "must be text, got 5"),
        ({"to": "a\0"}, "to", "must be text without NUL and halves of surrogate pairs"),
        ({"items": {}}, "items", "must be a list, got {}"),
        ({"items": [{}]}, "items[0].name", "is missing"),
        ({"items": [3]}, "items[0]", "must be a mapping, got 3"),
        (item(count="2"), "items[0].count", 'must be a whole number, got "2"'),
        (item(count=2.0), "items[0].count", "must be a whole number, got 2.0"),
        (item(count=True), "items[0].count", "must be a whole number, got true"),
        (item(price="2"), "items[0].price", 'must be a finite number, got "2"'),
        ({"colour": "Red"}, "colour", 'must be one of "red", "blue", got "Red"'),
        ({"id": "7"}, "id", 'must be a UUID, got "7"'),
        ({"day": "2026-02-30"}, "day", 'must be a date such as 2026-01-31, got "2026-02-30"'),
        ({"labels": {"a": 1}}, "labels.a", "must be true or false, got 1"),
        ({"width": 1.5}, "width", "fits none of its types, got 1.5"),
        (
            item(**{"na\u202eme": 1}),
            'items[0]["na⟦U+202E⟧me"]',
            "is unknown; known: name, count, price",
        ),
    ],
)
def test_misfit_names_its_place_and_value(changed: dict[str, Any], field: str, reason: str) -> None:
    schema = object_schema(Order)
    assert misfits(schema, FITTING) == []
    assert misfits(schema, {**FITTING, **changed}) == [Misfit(field, reason)]


def test_all_misfits_are_found_at_once() -> None:
    found = misfits(object_schema(Order), {"items": [{"count": None}], "colour": 1})
    assert {each.field for each in found} == {"to", "items[0].name", "items[0].count", "colour"}


@pytest.mark.parametrize(
    "schema, output",
    [
        ({"type": "string", "pattern": "a+"}, "cannot be checked: its schema has pattern"),
        ({"$ref": "#/x", "oneOf": []}, "cannot be checked: its schema has $ref, oneOf"),
        ({"type": ["string", "null"]}, "cannot be checked: its schema has the type"),
        ({"type": "text"}, 'cannot be checked: its schema has the type "text"'),
        ({"type": "string", "format": "email"}, 'must be of the format "email"'),
    ],
)
def test_unknown_schema_accepts_nothing(schema: Schema, output: str) -> None:
    (misfit,) = misfits(schema, "aaa")
    assert misfit.reason.startswith(output)
    (within,) = misfits({"type": "array", "items": schema}, ["aaa"])
    assert within.field == "[0]"


def test_a_hostile_value_is_shown_short_and_harmless() -> None:
    (misfit,) = misfits({"type": "integer"}, "\x1b]0;\u202e" + "x" * 10_000)
    assert len(misfit.reason) < 200
    assert misfit.reason.isprintable()


@pytest.mark.parametrize(
    "payload, names_code, message",
    [
        ({"n": "x"}, False, 'payload.n must be a whole number, got "x"'),
        ({"n": "x"}, True, "payload of code v1 of 'count': payload.n must be"),
        ({"n": "x", "m": 1}, False, "payload of 'count' has an unknown key 'm'; payload.n must be"),
    ],
)
def test_a_problem_of_one_argument_names_its_payload_once(
    payload: dict[str, Any], message: str, *, names_code: bool
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    misfit = payload_misfit("count", CodeArguments(version="v1", schema=schema), payload)
    assert misfit is not None
    assert misfit.error(names_code=names_code).message.startswith(message)
