"""JSON schemas for OpenAI's strict mode, in which an answer always fits its schema.

The mode takes a part of JSON Schema: each object is closed and requires all of its properties. A
schema that says something else is sent as it is, without the promise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

KEYWORDS: Final = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "description"),
        *("enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems"),
        *("maximum", "minItems", "minimum", "multipleOf", "pattern", "properties", "required"),
        *("title", "type"),
    }
)
"""What strict mode takes: see the page on structured outputs, supported schemas."""
DROPPED: Final = frozenset({"$schema", "$id", "default", "title"})
"""What says nothing about values; strict mode refuses most of it."""
FORMATS: Final = frozenset(
    {
        *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"),
    }
)
TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
DEPTH_MAX: Final = 10
PROPERTIES_MAX: Final = 5_000
CHOICES_MAX: Final = 1_000
"""Values of all choices together."""
LONG_CHOICE: Final = 250
LONG_CHARS_MAX: Final = 15_000
"""Of the texts of a choice with more values than that."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema closed, as strict mode takes it; None if it cannot be said there."""
    if schema.get("type") != "object" or "anyOf" in schema:
        return None  # the root must be an object
    count = [0, 0]
    try:
        return _closed(schema, 0, count)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    """Strict mode cannot say it."""


def _closed(schema: Any, depth: int, count: list[int]) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise _NotStrictError
    kept = {name: value for name, value in schema.items() if name not in DROPPED}
    if kept.keys() - KEYWORDS or not kept.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        raise _NotStrictError
    if kept.get("format") not in (None, *FORMATS):
        raise _NotStrictError
    fresh = dict(kept)
    if kept.get("type") == "object" or "properties" in kept:
        fresh |= _closed_object(kept, depth, count)
    if kept.keys() & {"enum", "const"}:
        fresh |= _choice(kept, count)
    if "$defs" in kept:
        fresh["$defs"] = {key: _closed(each, 0, count) for key, each in kept["$defs"].items()}
    if "items" in kept:
        fresh["items"] = _closed(kept["items"], depth + 1, count)
    elif kept.get("type") == "array":
        raise _NotStrictError
    if "anyOf" in kept:
        fresh["anyOf"] = [_closed(each, depth, count) for each in kept["anyOf"]]
    return fresh


def _choice(kept: Mapping[str, Any], count: list[int]) -> dict[str, Any]:
    """Return the type of a choice, which strict mode does not take without one."""
    values = kept.get("enum") or [kept.get("const")]
    count[1] += len(values)
    chars = sum(len(each) for each in values if isinstance(each, str))
    is_long = len(values) > LONG_CHOICE and chars > LONG_CHARS_MAX
    if count[1] > CHOICES_MAX or is_long:
        raise _NotStrictError
    return {"type": kept["type"] if "type" in kept else _types_of(values)}


def _types_of(values: Sequence[Any]) -> str | list[str]:
    found = list(dict.fromkeys(TYPES.get(type(each), "") for each in values))
    if "" in found or {"integer", "number"} <= {*found}:
        raise _NotStrictError
    return found[0] if len(found) == 1 else found


def _closed_object(kept: Mapping[str, Any], depth: int, count: list[int]) -> dict[str, Any]:
    properties = kept.get("properties", {})
    count[0] += len(properties)
    is_open = kept.get("additionalProperties", False) is not False
    has_optional = set(kept.get("required", ())) != set(properties)
    if is_open or has_optional or count[0] > PROPERTIES_MAX:
        raise _NotStrictError
    return {
        "type": "object",
        "properties": {name: _closed(each, depth + 1, count) for name, each in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
