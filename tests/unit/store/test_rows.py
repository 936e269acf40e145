"""Records become attrs classes as the types of their fields say."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import attrs
import pytest

from cortex.store.rows import row_of, rows_of

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
ID = UUID(int=7)


class Colour(StrEnum):
    RED = "red"


@attrs.frozen(kw_only=True)
class Part:
    id: UUID
    at: datetime | None
    cost: Decimal
    colour: Colour
    more: dict[str, Any]


@attrs.frozen(kw_only=True)
class Whole:
    id: UUID
    at: datetime
    colour: Colour | None
    tags: tuple[str, ...]
    colours: frozenset[Colour]
    data: dict[str, Any]
    result: Any
    raw: str | None
    parts: list[Part]
    newest: Part | None
    loud: Annotated[str, str.upper]
    label: str


PART = f'{{"id": "{ID}", "at": "{AT.isoformat()}", "cost": 0.1, "colour": "red", "more": {{}}}}'
RECORD: dict[str, Any] = {
    "id": ID,
    "at": AT,
    "colour": "red",
    "tags": ["a", "b"],
    "colours": ["red"],
    "data": '{"n": 1}',
    "result": "[1, null]",
    "raw": '{"n": 1}',
    "parts": f"[{PART}]",
    "newest": PART,
    "loud": "text",
    "no_field": 1,
}
A_PART = Part(id=ID, at=AT, cost=Decimal("0.1"), colour=Colour.RED, more={})


def test_each_column_becomes_the_type_of_its_field() -> None:
    assert row_of(Whole, RECORD, label="more") == Whole(
        id=ID,
        at=AT,
        colour=Colour.RED,
        tags=("a", "b"),
        colours=frozenset({Colour.RED}),
        data={"n": 1},
        result=[1, None],
        raw='{"n": 1}',
        parts=[A_PART],
        newest=A_PART,
        loud="TEXT",
        label="more",
    )
    assert type(row_of(Whole, RECORD, label="more").colour) is Colour


def test_null_becomes_none_for_any_type() -> None:
    null = dict.fromkeys(RECORD)
    assert set(attrs.asdict(row_of(Whole, null, label=None)).values()) == {None}


def test_rows_keep_their_order() -> None:
    found = rows_of(Whole, [RECORD, RECORD | {"raw": None}], label="")
    assert [each.raw for each in found] == ['{"n": 1}', None]


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(KeyError, match="colour"):
        row_of(Whole, {name: value for name, value in RECORD.items() if name != "colour"}, label="")
    with pytest.raises(KeyError, match="more"):
        row_of(
            Whole,
            RECORD | {"parts": '[{"id": null, "at": null, "cost": 1, "colour": null}]'},
            label="",
        )


def test_an_unknown_word_of_an_enum_is_an_error() -> None:
    with pytest.raises(ValueError, match="blue"):
        row_of(Whole, RECORD | {"colour": "blue"}, label="")
