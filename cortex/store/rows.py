"""Postgres records as attrs classes: each field takes the column of its name.

A field's type determines the conversion of its column: enums are looked up, arrays become tuples,
JSON text becomes attrs classes, or plain values where the type is `Any` or a dict. Columns without
a field are left out. Handwritten instead of cattrs, whose import takes longer than most commands
do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
import orjson

from cortex.postgres.database import Record

V = TypeVar("V")
T = TypeVar("T", bound=attrs.AttrsInstance)
Convert = Callable[[Any], Any]

_PLAIN = (dict, Mapping)
_OF_JSON: dict[object, Convert] = {
    datetime: datetime.fromisoformat,
    UUID: UUID,
    Decimal: lambda value: Decimal(str(value)),
}
"""Types that JSON represents differently."""


def unless_all_null(column: list[V | None]) -> list[V | None]:
    """Return a column for `unnest` beside longer ones, empty if all of it is NULL.

    `unnest` pads the shorter columns with NULL, and the driver encodes item by item.
    """
    return [] if column.count(None) == len(column) else column


def row_of(kind: type[T], record: Record | Mapping[str, Any], **more: Any) -> T:
    """Return a record as its class; `more` are fields that are not columns.

    Raises `KeyError` for a field without a column.
    """
    return kind(**_values(_plan(kind, is_json=False), record, more))


def rows_of(kind: type[T], records: Iterable[Record | Mapping[str, Any]], **more: Any) -> list[T]:
    """Return records as their class, in the same order."""
    plan = _plan(kind, is_json=False)
    return [kind(**_values(plan, record, more)) for record in records]


def from_json(text: str | None) -> Any:
    """Return what a JSON column holds; None for null."""
    return None if text is None else orjson.loads(text)


Plan = tuple[tuple[str, Convert | None], ...]


def _values(plan: Plan, row: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    values = {
        name: value if (value := row[name]) is None or convert is None else convert(value)
        for name, convert in plan
        if name not in more
    }
    return {**values, **more} if more else values


@cache
def _plan(kind: Any, *, is_json: bool) -> Plan:
    """Return the fields of a class with their converters; a field's own converter wins."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (
            field.name,
            None if field.converter else _convert(hints[field.name], is_json=is_json),
        )
        for field in attrs.fields(kind)
        if field.init
    )


def _structure(kind: Any) -> Convert:
    """Return a converter of a JSON object to a class."""
    plan = _plan(kind, is_json=True)
    return lambda row: kind(**_values(plan, row, {}))


def _convert(hint: Any, *, is_json: bool) -> Convert | None:
    """Return a converter of non-null values to this type; None if none is needed."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Annotated:
        convert: Convert = members[1]
        return convert
    if origin in (Union, UnionType):
        (hint,) = (each for each in members if each is not type(None))
        return _convert(hint, is_json=is_json)
    if origin in (tuple, list, frozenset, Sequence):
        return _convert_all(origin, members[0], is_json=is_json)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if hint is Any or origin in _PLAIN or attrs.has(hint):
        return _of_object(hint, is_json=is_json)
    return _OF_JSON.get(hint) if is_json else None


def _of_object(hint: Any, *, is_json: bool) -> Convert | None:
    """Return a converter of JSON values, or of an object or its text to an attrs class."""
    structure = _structure(hint) if attrs.has(hint) else None
    if is_json or structure is None:
        return structure if is_json else orjson.loads
    return lambda text: structure(orjson.loads(text))


def _convert_all(origin: Any, member: Any, *, is_json: bool) -> Convert:
    """Return a converter of a Postgres array, or a JSON one, to a collection."""
    make = list if origin is list else frozenset if origin is frozenset else tuple
    if attrs.has(member) and not is_json:
        structure = _structure(member)
        return lambda text: make(map(structure, orjson.loads(text)))
    convert = _convert(member, is_json=is_json)
    return make if convert is None else lambda values: make(map(convert, values))
