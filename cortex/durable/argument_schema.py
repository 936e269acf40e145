"""The schema of a job type's arguments.

A schema accepts at least what the handler's own check accepts, so that nobody is refused in vain:
where a type has no exact form, it accepts anything.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

import attrs
import orjson

from cortex.domain.argument_check import KEYWORDS
from cortex.durable.class_fields import has_fields
from cortex.durable.json_schema import (
    FieldSchema,
    Schema,
    UnsupportedTypeError,
    fields_of,
    object_of,
    schema_of,
)
from cortex.durable.structuring import converter

DEFAULT_BYTES_MAX: Final = 1024
"""Longer defaults are left out."""


def arguments_schema(handler: Callable[..., Any], parameters: Mapping[str, Any]) -> Schema:
    """Return the schema of a handler's arguments; `parameters`: their types by name."""
    signature = inspect.signature(handler).parameters
    fields = {}
    for name, hint in parameters.items():
        default = signature[name].default
        is_required = default is inspect.Parameter.empty
        fields[name] = FieldSchema(
            schema_of_type(hint) | ({} if is_required else _default(default)), is_required
        )
    schema = {**object_of(fields), "additionalProperties": False}
    plain: Schema = orjson.loads(orjson.dumps(schema))  # equal to what the database returns
    return plain


def schema_of_type(hint: Any) -> Schema:
    """Return the schema of a type, closed; an empty one if it has no JSON form to check."""
    try:
        schema = {} if _is_lenient(hint) else schema_of(hint, lambda cls: _of_class(cls, ()))
        orjson.dumps(schema)
    except (UnsupportedTypeError, orjson.JSONEncodeError):
        return {}
    return schema


def _of_class(cls: type, outer: tuple[type, ...]) -> Schema | None:
    if not has_fields(cls):
        return None
    if cls in outer:
        raise UnsupportedTypeError(f"{cls.__name__} contains itself")
    fields = {
        name: FieldSchema(_known(each.schema), each.is_required)
        for name, each in fields_of(cls, lambda inner: _of_class(inner, (*outer, cls))).items()
    }
    # JSON may also contain what the class computes itself.
    derived = {
        each.name: FieldSchema({}, is_required=False)
        for each in (attrs.fields(cls) if attrs.has(cls) else ())
        if not each.init
    }
    return {**object_of(fields | derived), "additionalProperties": False}


def _known(schema: Schema) -> Schema:
    """Return a schema without the keywords of other checks, such as lengths."""
    return {name: value for name, value in schema.items() if name in KEYWORDS}


def _is_lenient(hint: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Return whether a part of a type accepts values that no schema lists."""
    if hint in seen:
        return False
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint._missing_.__func__ is not Enum._missing_.__func__  # type: ignore[attr-defined]
    parts = get_args(hint)
    if has_fields(hint):
        parts = tuple(get_type_hints(hint).values())
    return any(_is_lenient(each, (*seen, hint)) for each in parts if not isinstance(each, list))


def _default(value: Any) -> Schema:
    """Return the default as a keyword, for people; nothing for one that JSON does not have."""
    try:
        plain = converter.unstructure(value)
        size = len(orjson.dumps(plain))
    except Exception:  # noqa: BLE001 -- the application's own converters
        return {}
    return {"default": plain} if size <= DEFAULT_BYTES_MAX else {}
