"""The one writer of JSON Schema, read from type hints.

Covers the types that `structuring.structure` accepts: text, numbers, truth values, paths, UUIDs,
dates, Decimals, lists, sets, tuples, mappings, `Literal`, enums, unions, attrs classes,
dataclasses, TypedDicts and `Any`. The caller decides how classes are written: tools write them
inline, the HTTP API as references.
"""

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import attrs

from cortex.durable import pydantic_models

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
    if origin in _LISTS:
        return {"type": "array", "items": _items(origin, members, of_class)}
    if origin in (dict, Mapping) and (not members or _is_key(members[0])):
        values = schema_of(members[1], of_class) if members else {}
        return {"type": "object", "additionalProperties": values}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice([each.value for each in hint])
    if isinstance(hint, type) and (made := of_class(hint)) is not None:
        return made
    if isinstance(hint, NewType):
        return schema_of(hint.__supertype__, of_class)
    if hint is Decimal:
        return {"anyOf": [{"type": "string"}, {"type": "number"}]}
    shown = inspect.formatannotation(hint) if members else getattr(hint, "__name__", hint)
    raise UnsupportedTypeError(f"{shown} has no JSON form")


_LISTS: Final = (list, Sequence, set, frozenset, tuple)


def _items(origin: Any, members: tuple[Any, ...], of_class: OfClass) -> Schema:
    if origin is tuple and members[1:] not in ((), (...,)):
        return {"anyOf": [schema_of(each, of_class) for each in members]}
    return schema_of(members[0], of_class) if members else {}


def _is_key(hint: Any) -> bool:
    """Return whether keys of this type are text in JSON."""
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    return is_enum or get_origin(hint) is Literal or hint in _KEYS


_KEYS: Final = (str, int, float, bool, UUID, date, datetime, Path, Decimal, Any, object)


@attrs.frozen
class FieldSchema:
    """A field of a class."""

    schema: Schema
    is_required: bool


def fields_of(
    shape: Any, of_class: OfClass, descriptions: Mapping[str, str] | None = None
) -> dict[str, FieldSchema]:
    """Return the fields that JSON may contain, with the `schema` of their metadata."""
    fields_by_name = {}
    for field in _fields(shape):
        schema = schema_of(field.hint, of_class) | field.schema
        if descriptions and field.name in descriptions:
            schema["description"] = descriptions[field.name]
        default = field.default.value if isinstance(field.default, Enum) else field.default
        if isinstance(default, str | int | float):
            schema["default"] = default
        fields_by_name[field.name] = FieldSchema(schema, field.is_required)
    return fields_by_name


@attrs.frozen
class _Field:
    name: str
    hint: Any
    is_required: bool
    default: Any = None
    schema: Schema = attrs.field(factory=dict)


def _fields(shape: Any) -> Iterator[_Field]:
    hints = get_type_hints(shape)
    if is_typeddict(shape):
        for name, hint in hints.items():
            yield _Field(name, hint, name in shape.__required_keys__)
    elif attrs.has(shape):
        for field in attrs.fields(shape):
            if field.init:
                hint = hints.get(field.name, field.type)
                is_required = field.default is attrs.NOTHING  # which is a member of an Enum, too
                default = None if is_required else field.default
                yield _Field(
                    field.name, hint, is_required, default, field.metadata.get("schema", {})
                )
    else:
        missing = dataclasses.MISSING
        for each in dataclasses.fields(shape):
            if each.init:
                is_required = each.default is missing and each.default_factory is missing
                yield _Field(each.name, hints[each.name], is_required, each.default)


def model_schema(model: Any) -> dict[str, Any]:
    """Return a Pydantic model's own schema, without references.

    Raises `UnsupportedTypeError` for a model that contains itself.
    """
    schema = model.model_json_schema(by_alias=not pydantic_models.takes_names())
    models = schema.pop("$defs", {})

    def inlined(part: Any, outer: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [inlined(each, outer) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in outer or name not in models:
                raise UnsupportedTypeError(f"{name} contains itself")
            rest = {key: value for key, value in part.items() if key != "$ref"}
            return inlined(models[name], (*outer, name)) | rest
        return {key: inlined(value, outer) for key, value in part.items()}

    found: dict[str, Any] = inlined(schema, ())
    return found


def object_of(fields: Mapping[str, FieldSchema]) -> Schema:
    return {
        "type": "object",
        "properties": {name: each.schema for name, each in fields.items()},
        "required": [name for name, each in fields.items() if each.is_required],
    }


def _choice(values: list[object]) -> Schema:
    kinds = {type(each) for each in values}
    shared = _SCALARS.get(kinds.pop(), {}) if len(kinds) == 1 else {}
    return {**shared, "enum": values}
