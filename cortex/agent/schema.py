"""JSON Schema for a tool's input, read from type hints and docstrings.

The schema describes to the model what `structuring.structure` accepts, so the two cover the same
types: text, numbers, truth values, paths, UUIDs, dates, lists, tuples of one type, mappings,
`Literal`, enums, unions, attrs classes and `Any`.
"""

import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
import docstring_parser

Schema = dict[str, Any]

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
    """A type hint that has no JSON Schema; the message names it."""


def object_schema(cls: type) -> Schema:
    """Return the schema of an attrs class, with its docstring's descriptions of attributes.

    Raises `UnsupportedTypeError` for a hint outside the list above or a class that contains itself.
    """
    return _of_class(cls, ())


def check_type(hint: Any) -> None:
    """Raise `UnsupportedTypeError` for a hint that `structure` cannot check values by."""
    _of(hint, ())


def argument_descriptions(docstring: str) -> dict[str, str]:
    """Return the entries of a Google-style `Args:` (or `Attributes:`) section, each on one line."""
    parsed = docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE)
    return {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}


def summary(docstring: str) -> str:
    """Return the docstring without its sections, by which the model chooses the tool."""
    parsed = docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE)
    return parsed.description or ""


def _of_class(cls: Any, outer: tuple[type, ...]) -> Schema:
    if cls in outer:
        raise UnsupportedTypeError(f"{cls.__name__} contains itself")
    hints = get_type_hints(cls)
    descriptions = argument_descriptions(cls.__doc__ or "")
    properties: Schema = {}
    required = []
    for field in attrs.fields(cls):
        if not field.init:
            continue
        schema = dict(_of(hints.get(field.name, field.type), (*outer, cls)))
        if field.name in descriptions:
            schema["description"] = descriptions[field.name]
        if field.default is attrs.NOTHING:
            required.append(field.name)
        elif isinstance(field.default, str | int | float):
            schema["default"] = field.default
        properties[field.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _of(hint: Any, outer: tuple[type, ...]) -> Schema:  # noqa: PLR0911 - one form a line
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, members = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return _choice(list(members))
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(each, outer) for each in members]}
    if origin in (list, Sequence) or (origin is tuple and members[1:] == (...,)):
        return {"type": "array", "items": _of(members[0], outer) if members else {}}
    if origin in (dict, Mapping) and members[:1] in ((), (str,)):
        return {"type": "object", "additionalProperties": _of(members[1], outer) if members else {}}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice([each.value for each in hint])
    if isinstance(hint, type) and attrs.has(hint):
        return _of_class(hint, outer)
    raise UnsupportedTypeError(f"{getattr(hint, '__name__', hint)} has no JSON form")


def _choice(values: list[object]) -> Schema:
    kinds = {type(each) for each in values}
    shared = _SCALARS.get(kinds.pop(), {}) if len(kinds) == 1 else {}
    return {**shared, "enum": values}
