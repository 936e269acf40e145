"""Classes that consist of declared fields: attrs classes, dataclasses and TypedDicts."""

import dataclasses
from typing import Any, TypeGuard, get_type_hints, is_typeddict

import attrs


def has_fields(cls: Any) -> TypeGuard[type]:
    """Return whether a type is such a class."""
    return isinstance(cls, type) and (
        attrs.has(cls) or dataclasses.is_dataclass(cls) or is_typeddict(cls)
    )


def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields of such a class, also of those that it computes itself."""
    if is_typeddict(cls):
        return tuple(get_type_hints(cls))
    fields: Any = attrs.fields if attrs.has(cls) else dataclasses.fields
    return tuple(each.name for each in fields(cls))
