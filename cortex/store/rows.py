"""Rows of queries as attrs classes: each field takes the column of its name."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import attrs
import orjson

from cortex.postgres.database import Record

T = TypeVar("T", bound=attrs.AttrsInstance)


def row_of(kind: type[T], record: Record, **more: Any) -> T:
    """Return a record as its class; `more` are fields that are not columns.

    Columns without a field are left out. Raises `KeyError` for a field without a column.
    """
    columns = {name: record[name] for name in _names(kind) if name not in more}
    return kind(**columns, **more)


def rows_of(kind: type[T], records: Iterable[Record]) -> list[T]:
    """Return records as their class, in the same order."""
    names = _names(kind)
    return [kind(**{name: record[name] for name in names}) for record in records]


def from_json(text: str | None) -> Any:
    """Return what a JSON column holds; None for null."""
    return None if text is None else orjson.loads(text)


@cache
def _names(kind: type[attrs.AttrsInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind) if field.init)
