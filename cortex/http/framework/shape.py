"""Shapes of queries, bodies and responses: attrs classes that check values and have a schema.

`text`, `whole` and `number` declare a field's limits; the check and the JSON Schema use the same
figures. Shapes may hold text, numbers, booleans, UUIDs, instants, enums, lists, mappings, unions,
other shapes and `Any`.
"""

import json
import re
import types
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
import cattrs

from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.option_check import can_show
from cortex.durable import codec, json_schema
from cortex.durable.json_schema import FieldSchema, Schema
from cortex.durable.structuring import (
    LISTED_MAX,
    MisfitError,
    UnfitError,
    converter,
    refuse,
    structure,
)

T = TypeVar("T")

NOT_BLANK: Final = r"\S"

# --- fields with limits


def text(
    *,
    doc: str,
    length_min: int = 0,
    length_max: int,
    pattern: str | None = None,
    default: Any = attrs.NOTHING,
) -> Any:
    """Declare a text field; `pattern` must match all of it. A required one must not be blank."""
    schema: Schema = {"minLength": length_min, "maxLength": length_max}
    if pattern is not None:
        schema["pattern"] = f"^(?:{pattern})$"
    elif length_min:
        schema["pattern"] = NOT_BLANK

    def check(value: Any) -> str | None:
        if not length_min <= len(value) <= length_max:
            return f"is {len(value)} characters, not {length_min} to {length_max}"
        if pattern is not None and not re.fullmatch(pattern, value, re.ASCII):
            return f"does not match {pattern}"
        if pattern is None and length_min and not re.search(NOT_BLANK, value):
            return "is blank"
        return None

    return _field(schema, check, doc=doc, default=default)


def whole(*, doc: str, low: int, high: int, default: Any = attrs.NOTHING) -> Any:
    """Declare an integer field with inclusive limits."""
    return number(doc=doc, low=low, high=high, default=default)


def number(*, doc: str, low: float, high: float, default: Any = attrs.NOTHING) -> Any:
    """Declare a number field with inclusive limits."""

    def check(value: Any) -> str | None:
        return None if low <= value <= high else f"is {value:.12g}, not {low:.12g} to {high:.12g}"

    return _field({"minimum": low, "maximum": high}, check, doc=doc, default=default)


def field(*, doc: str, default: Any = attrs.NOTHING, factory: Any = None) -> Any:
    """Declare a field without limits."""
    if factory is not None:
        return attrs.field(factory=factory, metadata={"schema": {"description": doc}})
    return attrs.field(default=default, metadata={"schema": {"description": doc}})


def _field(schema: Schema, check: Any, *, doc: str, default: Any) -> Any:
    def validate(_: object, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if value is not None and (fault := check(value)) is not None:
            raise UnfitError(fault, path=(attribute.name,))

    return attrs.field(
        default=default, validator=validate, metadata={"schema": {**schema, "description": doc}}
    )


# --- values from clients


def from_json(raw: bytes, shape: type[T]) -> T:
    """Return a body in its shape.

    Raises `UsageError` if it is not JSON, `InvalidValueError` if it has another shape or values
    that Postgres cannot store.
    """
    try:
        value = json.loads(
            raw.decode(),
            parse_int=_whole if codec.MANY_DIGITS.search(raw) else None,
            parse_constant=_no_constant,
            object_pairs_hook=_once_each,
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    try:
        codec.refuse_unstorable(value, "body")
        return structure(value, shape, what="body", using=_converter)
    except RecursionError as error:
        raise InvalidValueError("the body is nested too deep") from error
    except MisfitError as error:
        hint = f"see {shape.__name__} in the document of GET /v1/openapi.json"
        raise InvalidValueError(_listed(error), hint=hint) from error


def from_query(items: Iterable[tuple[str, str]], shape: type[T]) -> T:
    """Return a query string's pairs in their shape. Raises `UsageError`."""
    hints = get_type_hints(shape)
    given: dict[str, Any] = {}
    for name, word in items:
        if name not in hints:
            known = ", ".join(sorted(hints)) or "none"
            raise UsageError(f"unknown query parameter {name!r}", hint=f"known: {known}")
        hint = _without_none(hints[name])
        if get_origin(hint) is list:
            given.setdefault(name, []).append(_from_word(word, get_args(hint)[0]))
        elif name in given:
            raise UsageError(f"query parameter {name!r} is given twice")
        else:
            given[name] = _from_word(word, hint)
    try:
        codec.refuse_unstorable(given, "query")
        return structure(given, shape, what="query", using=_converter)
    except InvalidValueError as error:
        raise UsageError(error.message) from error
    except MisfitError as error:
        raise UsageError(_listed(error), hint=f"known: {', '.join(sorted(hints))}") from error


def _listed(error: MisfitError) -> str:
    """Name the first fields that do not fit, their values, and what is expected."""
    first = error.problems[:LISTED_MAX]
    more = len(error.problems) - len(first)
    return str(MisfitError(first)) + (f"; and {more} more" if more else "")


def _uuid(value: Any, _: Any) -> UUID:
    if isinstance(value, str) and len(value) == 36:  # noqa: PLR2004 -- with its dashes
        with suppress(ValueError):
            return UUID(value)
    return refuse("a UUID", value)


def _instant(value: Any, _: Any) -> datetime:
    made = None
    if isinstance(value, str):
        with suppress(ValueError):
            made = datetime.fromisoformat(value)
    if made is None or made.tzinfo is None:
        return refuse("an instant with its time zone, such as 2026-01-31T12:00:00Z", value)
    return made if can_show(made) else refuse("an instant of the years 1 to 9999", value)


def _make_converter() -> cattrs.Converter:
    made = converter.copy()
    made.register_structure_hook(UUID, _uuid)
    made.register_structure_hook(datetime, _instant)
    return made


_converter: Final = _make_converter()


def _from_word(word: str, hint: Any) -> Any:
    """Convert a word of a query to the JSON type of its field; other words stay text."""
    if hint is bool:
        return {"true": True, "false": False}.get(word, word)
    if hint is int and re.fullmatch(r"-?\d{1,18}", word, re.ASCII):
        return int(word)
    if hint is float and re.fullmatch(r"-?\d{1,18}(\.\d{1,18})?", word, re.ASCII):
        return float(word)
    return word


def _whole(digits: str) -> int:
    if not -(2**63) <= (value := int(digits[:30])) < 2**63:
        raise ValueError(f"{digits[:30]} does not fit into 64 bits; send it as text")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object holds the same key twice")
    return made


# --- records into responses


def record(shape: type[T], row: object, **more: Any) -> T:
    """Build a response from the fields of a row; `more` overrides the row's."""
    names = [field.name for field in attrs.fields(shape)]  # type: ignore[arg-type]
    return shape(**{name: more[name] if name in more else getattr(row, name) for name in names})


# --- schemas


def schema_of(hint: Any, components: dict[str, Schema]) -> Schema:
    """Return the JSON Schema of a type; classes become references into `components`.

    Raises `TypeError` for a type without a JSON form, or two classes of one name.
    """
    return json_schema.schema_of(hint, partial(_of_class, components=components))


def fields_of(shape: type, components: dict[str, Schema]) -> dict[str, FieldSchema]:
    """Return the schema of each field of a shape, and whether it is required."""
    return json_schema.fields_of(shape, partial(_of_class, components=components))


def query_schema(hint: Any) -> Any:
    """Return the type of a query parameter when it is given: it is never null."""
    return _without_none(hint)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not types.NoneType]
        return rest[0] if len(rest) == 1 else hint
    return hint


_OWNER: Final = "x-shape"


def _of_class(kind: type, components: dict[str, Schema]) -> Schema | None:
    if kind is Decimal:  # in answers only
        return {"type": "number"}
    return _reference(kind, components) if attrs.has(kind) else None


def _reference(shape: type, components: dict[str, Schema]) -> Schema:
    name, owner = shape.__name__, f"{shape.__module__}.{shape.__qualname__}"
    if name not in components:
        components[name] = {_OWNER: owner}  # registered before its fields: it may contain itself
        description = (shape.__doc__ or "").strip().split("\n")[0]
        components[name] |= {"type": "object", "description": description}
        components[name] |= json_schema.object_of(fields_of(shape, components))
    elif components[name][_OWNER] != owner:
        raise TypeError(f"two shapes are called {name}: {owner} and {components[name][_OWNER]}")
    return {"$ref": f"#/components/schemas/{name}"}
