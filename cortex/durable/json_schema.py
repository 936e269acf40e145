"""The one writer of JSON Schema, read from type hints.

Covers the types that `structuring.structure` accepts: text, numbers, truth values, paths, UUIDs,
dates, lists, tuples of one type, mappings, `Literal`, enums, unions, attrs classes and `Any`. The
caller decides how classes are written: tools write them inline, the HTTP API as references.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs

Schema = dict[str, Any]
OfClass = Callable[[type], Schema | None]
"""Writes a class that has no form of its own here; None if it has none there either."""

_SCALARS: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Path: {"type": "string"},
    UUID: {"type": "string", "format": "uuid"},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    object: {},
    Any: {},
}


class UnsupportedTypeError(TypeError):
    """A type hint without a JSON Schema; the message names it."""


def schema_of(hint: Any, of_class: OfClass) -> Schema:  # noqa: PLR0911 -- one form a line
    """Return the schema of a type. Raises `UnsupportedTypeError` for one without a JSON form."""
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin, members = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return _choice(list(members))
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, of_class) for each in members]}
    if origin in (list, Sequence) or (origin is tuple and members[1:] == (...,)):
        return {"type": "array", "items": schema_of(members[0], of_class) if members else {}}
    if origin in (dict, Mapping) and members[:1] in ((), (str,)):
        values = schema_of(members[1], of_class) if members else {}
        return {"type": "object", "additionalProperties": values}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice([each.value for each in hint])
    if isinstance(hint, type) and (made := of_class(hint)) is not None:
        return made
    raise UnsupportedTypeError(f"{getattr(hint, '__name__', hint)} has no JSON form")


@attrs.frozen
class FieldSchema:
    """A field of an attrs class."""

    schema: Schema
    is_required: bool


def fields_of(
    shape: Any, of_class: OfClass, descriptions: Mapping[str, str] | None = None
) -> dict[str, FieldSchema]:
    """Return the fields that JSON may contain, with the `schema` of their metadata."""
    hints = get_type_hints(shape)
    fields_by_name = {}
    for field in attrs.fields(shape):
        if not field.init:
            continue
        schema = schema_of(hints.get(field.name, field.type), of_class)
        schema |= field.metadata.get("schema", {})
        if descriptions and field.name in descriptions:
            schema["description"] = descriptions[field.name]
        is_required = field.default is attrs.NOTHING  # which is a member of an Enum, too
        default = field.default.value if isinstance(field.default, Enum) else field.default
        if not is_required and isinstance(default, str | int | float):
            schema["default"] = default
        fields_by_name[field.name] = FieldSchema(schema, is_required)
    return fields_by_name


def object_of(fields: Mapping[str, FieldSchema]) -> Schema:
    """Return the schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {name: each.schema for name, each in fields.items()},
        "required": [name for name, each in fields.items() if each.is_required],
    }


def _choice(values: list[object]) -> Schema:
    kinds = {type(each) for each in values}
    shared = _SCALARS.get(kinds.pop(), {}) if len(kinds) == 1 else {}
    return {**shared, "enum": values}
