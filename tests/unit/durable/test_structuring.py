"""Values that fit are taken unchanged; others are reported with their path, never repaired."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.agent.plain import plain
from cortex.domain.errors import InvalidValueError
from cortex.durable.structuring import (
    SHOWN_CHARS_MAX,
    MisfitError,
    show,
    structure,
    structure_discreetly,
    suggestion,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Point:
    x: int
    y: float = 0.0


@attrs.frozen
class Shape:
    name: str
    points: tuple[Point, ...] = ()
    labels: dict[str, Point] = attrs.field(factory=dict)
    origin: Point | None = None
    colour: Colour = Colour.RED
    mode: Literal["fill", 1] = "fill"
    width: int | str | list[int] = 1
    closed: bool = False
    extra: Any = None


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
points = st.builds(Point, x=st.integers(), y=st.floats(allow_nan=False, allow_infinity=False))
shapes = st.builds(
    Shape,
    name=texts,
    points=st.lists(points, max_size=3).map(tuple),
    labels=st.dictionaries(texts, points, max_size=3),
    origin=st.none() | points,
    colour=st.sampled_from(Colour),
    mode=st.sampled_from(["fill", 1]),
    width=st.integers() | texts | st.lists(st.integers(), max_size=3),
    closed=st.booleans(),
    extra=st.none() | texts | st.lists(st.integers(), max_size=3),
)


@given(shapes)
def test_plain_value_structures_back(shape: Shape) -> None:
    assert structure(plain(shape), Shape) == shape


@pytest.mark.parametrize(
    "value, output",
    [
        ({}, "name is missing"),
        ({"name": 3}, "name must be text, got 3"),
        ({"name": None}, "name must be text, got null"),
        ({"name": "\0"}, "name must be text that UTF-8 and Postgres can hold"),
        ({"name": "\ud800"}, "name must be text that UTF-8 and Postgres can hold"),
        ({"name": "a", "closed": 1}, "closed must be true or false, got 1"),
        ({"name": "a", "points": "ab"}, 'points must be a list, got "ab"'),
        ({"name": "a", "points": [{"x": True}]}, "points[0].x must be a whole number, got true"),
        ({"name": "a", "points": [{"x": 1.0}]}, "points[0].x must be a whole number, got 1.0"),
        ({"name": "a", "points": [3]}, "points[0] must be a mapping, got 3"),
        (
            {"name": "a", "labels": {"k": {"x": 1, "y": "2"}}},
            'labels.k.y must be a number, got "2"',
        ),
        ({"name": "a", "origin": {"x": 1, "y": float("nan")}}, "origin.y must be a finite number"),
        ({"name": "a", "origin": {"x": 1, "y": 10**400}}, "origin.y must be a finite number"),
        ({"name": "a", "origin": {"x": 1, "z": 1}}, "origin.z is unknown; known: x, y"),
        ({"name": "a", "origin": []}, "origin must be a mapping, got []"),
        ({"name": "a", "colour": "RED"}, 'colour must be one of "red", "blue", got "RED"'),
        ({"name": "a", "mode": True}, 'mode must be one of "fill", 1, got true'),
        ({"name": "a", "width": 1.5}, "width must be one of int, str, list, got 1.5"),
        ({"name": "a", "width": ["b"]}, 'width[0] must be a whole number, got "b"'),
        ({"name": "a", "pionts": []}, "pionts is unknown; did you mean 'points'?"),
        ({"name": "a", "qqq": 1}, "qqq is unknown; known: name, points"),
        ([], "must be a mapping, got []"),
    ],
)
def test_misfit_is_reported_with_its_path(value: object, output: str) -> None:
    with pytest.raises(MisfitError) as caught:
        structure(value, Shape)
    assert str(caught.value).startswith(output)


def test_all_problems_are_found_at_once() -> None:
    with pytest.raises(MisfitError) as caught:
        structure({"points": [{"x": "1"}], "closed": None, "more": 1}, Shape)
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"name", "points[0].x", "closed", "more"}


def test_a_long_value_is_cut_in_an_error() -> None:
    assert len(show("a" * 1_000)) == SHOWN_CHARS_MAX + 1


@attrs.frozen
class Written:
    path: Path
    id: UUID
    day: date
    at: datetime
    parts: Sequence[int]
    labels: Mapping[str, Any]
    anything: object
    size: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    doubled: int = attrs.field(init=False, default=2)


WRITTEN = Written(
    path=Path("a/b"),
    id=UUID(int=7),
    day=date(2026, 1, 31),
    at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    parts=[1],
    labels={"a": None},
    anything=["x"],
)


def test_values_written_as_text_structure_back() -> None:
    assert structure(plain(WRITTEN), Written) == WRITTEN


@pytest.mark.parametrize(
    "changed, output",
    [
        ({"path": 3}, "path must be a path, got 3"),
        ({"id": "7"}, 'id must be a UUID, got "7"'),
        ({"day": "2026-02-30"}, 'day must be a date such as 2026-01-31, got "2026-02-30"'),
        ({"at": "noon"}, "at must be a time such as 2026-01-31T12:00:00+00:00, got"),
        ({"parts": "12"}, 'parts must be a list, got "12"'),
        ({"labels": []}, "labels must be a mapping, got []"),
        ({"size": 0}, "is refused: 'size' must be >= 1: 0"),
    ],
)
def test_wrongly_written_value_is_reported(changed: dict[str, object], output: str) -> None:
    written: Any = plain(WRITTEN)
    with pytest.raises(MisfitError) as caught:
        structure({**written, **changed}, Written)
    assert str(caught.value).startswith(output)


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"

    @classmethod
    def _missing_(cls, value: object) -> "Word | None":
        return cls.YES if value == "YES" else None


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value, target, expected",
    [
        (3, Level, Level.HIGH),
        ("yes", Word, Word.YES),
        ("YES", Word, Word.YES),
        ("li", Name, Name("li")),
        ([1, 1], set[int], {1}),
        (["a"], frozenset[str], frozenset({"a"})),
        ([1, "a"], tuple[int, str], (1, "a")),
        ("2026-01-31", str | date, "2026-01-31"),
        ("2026-01-31", date | str, date(2026, 1, 31)),
    ],
    ids=str,
)
def test_value_becomes_the_declared_type(value: object, target: Any, expected: object) -> None:
    found = structure(value, target)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("target", [set[str], frozenset[str], tuple[str, ...], Sequence[str]])
@pytest.mark.parametrize("value", ["ab", {"a": 1}], ids=repr)
def test_only_a_list_becomes_a_collection(value: object, target: Any) -> None:
    with pytest.raises(MisfitError, match="must be a list, got"):
        structure(value, target)


@pytest.mark.parametrize(
    "value, target, message",
    [
        ("s3cret", int, "invalid type (expected int, got str) @ payload.key"),
        (["s3cret"], list[int], "invalid value for type, expected int @ payload.key[0]"),
        ({"s3cret": 1}, int | str, "invalid value (expected one of int, str) @ payload.key"),
        ("s3cret", UUID, "invalid value (expected a UUID) @ payload.key"),
        ({"x": "s3cret"}, Point, "invalid value for type, expected int @ payload.key.x"),
        ({}, Point, "required field missing @ payload.key.x"),
    ],
    ids=str,
)
def test_discreet_error_names_the_place_and_never_the_value(
    value: object, target: Any, message: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        structure_discreetly(value, target, what="payload.key")
    assert caught.value.message == message


def test_the_beginning_of_a_name_leads_to_it() -> None:
    assert suggestion("timeout", ("tool_timeouts", "timeout_s")) == "did you mean 'timeout_s'?"


def test_text_that_cannot_be_stored_becomes_visible() -> None:
    assert plain({"a\0": ["\ud800b"]}) == {"a\ufffd": ["\ufffdb"]}
