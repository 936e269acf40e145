"""The JSON Schema of a tool's input, with the descriptions of its docstrings."""

from typing import Any

import docstring_parser

from cortex.domain.file import File
from cortex.durable.class_fields import has_fields
from cortex.durable.json_schema import (
    Schema,
    UnsupportedTypeError,
    fields_of,
    model_schema,
    object_of,
    schema_of,
)
from cortex.durable.pydantic_models import is_model


def object_schema(cls: type) -> Schema:
    """Return the schema of an attrs class, with its docstring's descriptions of attributes.

    Raises `UnsupportedTypeError` for a hint without a JSON form or a class that contains itself.
    """
    return _object(cls, ())


def check_type(hint: Any) -> None:
    """Raise `UnsupportedTypeError` for a hint that `structure` cannot check values by."""
    schema_of(hint, lambda cls: _of_class(cls, ()))


def argument_descriptions(docstring: str) -> dict[str, str]:
    """Return the entries of a Google-style `Args:` (or `Attributes:`) section, each on one line."""
    parsed = docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE)
    return {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}


def summary(docstring: str) -> str:
    """Return the docstring without its sections, by which the model chooses the tool."""
    parsed = docstring_parser.parse(docstring, docstring_parser.DocstringStyle.GOOGLE)
    return parsed.description or ""


def _of_class(cls: type, outer: tuple[type, ...]) -> Schema | None:
    if is_model(cls):
        return model_schema(cls)
    if cls is File and not outer:
        return {}  # in a result: see `Toolbox`
    return _object(cls, outer) if has_fields(cls) else None


def _object(cls: type, outer: tuple[type, ...]) -> Schema:
    if cls in outer:
        raise UnsupportedTypeError(f"{cls.__name__} contains itself")
    descriptions = argument_descriptions(cls.__doc__ or "")
    fields = fields_of(cls, lambda inner: _of_class(inner, (*outer, cls)), descriptions)
    return {**object_of(fields), "additionalProperties": False}
