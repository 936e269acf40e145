"""The values that a shape takes, and that its schema agrees."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.errors import InvalidValueError, UsageError
from cortex.durable.json_schema import Schema
from cortex.http.framework.route import answer
from cortex.http.framework.shape import (
    field,
    from_json,
    from_query,
    record,
    schema_of,
    text,
    whole,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Inner:
    """An inner shape."""

    at: datetime


@attrs.frozen(kw_only=True)
class Outer:
    """All kinds.

    More about it.
    """

    name: str = text(doc="a name", length_min=1, length_max=5)
    count: int = whole(doc="how many", low=0, high=9, default=1)
    note: str | None = text(doc="a note", length_max=3, default=None)
    colour: Colour = Colour.RED
    tags: list[str] = field(doc="tags", factory=list)
    inner: Inner | None = None
    data: dict[str, Any] = field(doc="anything", factory=dict)


@attrs.frozen(kw_only=True)
class Query:
    """Asked for."""

    limit: int = whole(doc="how many", low=1, high=100, default=50)
    is_open: bool | None = None
    colour: list[Colour] = field(doc="colours", factory=list)
    job: UUID | None = None


def test_a_body_gets_its_types() -> None:
    made = from_json(
        b'{"name":"a","colour":"blue","inner":{"at":"2026-01-02T03:04:05Z"},"tags":["x"]}', Outer
    )
    assert made.colour is Colour.BLUE
    assert made.inner == Inner(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":""}',
        b'{"name":"aaaaaa"}',
        b'{"name":"a","note":"aaaa"}',
        b'{"name":"a","colour":"green"}',
        b'{"name":"a","inner":{"at":"soon"}}',
        b'{"name":"a","inner":{"at":1}}',
        b'{"name":"a","inner":{"at":"2026-01-02T03:04:05Z","x":1}}',
        b'{"name":"a","tags":"x"}',
        b'{"name":"a","tags":[1]}',
        b'{"name":null}',
    ],
)
def test_a_body_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidValueError):
        from_json(body, Outer)


def test_a_query_gets_its_types() -> None:
    job = "01a1f84b-0000-7000-8000-000000000000"
    pairs = [("limit", "7"), ("is_open", "true"), ("job", job), ("colour", "red")]
    made = from_query([*pairs, ("colour", "blue")], Query)
    assert made == Query(limit=7, is_open=True, colour=[Colour.RED, Colour.BLUE], job=UUID(job))
    assert from_query([], Query) == Query()


@pytest.mark.parametrize(
    "pairs",
    [
        [("limit", "0")],
        [("limit", "1.0")],
        [("limit", "\N{ARABIC-INDIC DIGIT ONE}")],
        [("limit", "9" * 40)],
        [("is_open", "yes")],
        [("colour", "green")],
        [("job", "x")],
        [("job", "")],
        [("limit", "1"), ("limit", "1")],
        [("no", "1")],
    ],
)
def test_a_query_that_does_not_fit_is_wrong_usage(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError):
        from_query(pairs, Query)


def test_schema_matches_the_shape() -> None:
    components: dict[str, Schema] = {}
    assert schema_of(Outer, components) == {"$ref": "#/components/schemas/Outer"}
    outer = components["Outer"]
    assert outer["required"] == ["name"]
    assert outer["description"] == "All kinds."
    described = outer["properties"]
    assert described["name"] == {
        "type": "string",
        "minLength": 1,
        "maxLength": 5,
        "pattern": r"\S",
        "description": "a name",
    }
    assert (
        described["count"]["minimum"],
        described["count"]["maximum"],
        described["count"]["default"],
    ) == (
        0,
        9,
        1,
    )
    assert described["colour"]["enum"] == ["red", "blue"]
    assert described["inner"]["anyOf"][0] == {"$ref": "#/components/schemas/Inner"}
    assert components["Inner"]["properties"]["at"]["format"] == "date-time"


def test_two_shapes_of_one_name_are_refused() -> None:
    components: dict[str, Schema] = {}
    schema_of(Outer, components)

    @attrs.frozen
    class Inner:
        x: int

    with pytest.raises(TypeError, match="two shapes are called Inner"):
        schema_of(Inner, components)
    with pytest.raises(TypeError, match="has no JSON form"):
        schema_of(complex, components)


def test_an_answer_is_made_of_a_row_and_written_as_json() -> None:
    row = SimpleNamespace(at=datetime(2026, 1, 2, tzinfo=UTC), more=1)
    assert record(Inner, row) == Inner(at=row.at)
    described = answer({"inner": record(Inner, row), "usd": Decimal("0.10"), "raw": b"\x01"})
    assert described.body == b'{"inner":{"at":"2026-01-02T00:00:00Z"},"usd":0.1,"raw":"01"}'
    with pytest.raises(TypeError):
        answer(object())
