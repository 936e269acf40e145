"""Checks values against a server's JSON Schemas, by the library `jsonschema`.

A schema is the server's, and so is not to be trusted with the pod's time: regular expressions in it
are not tried, and references lead nowhere outside of it.
"""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.argument_check import KEYWORDS, SAYS_NOTHING
from cortex.domain.errors import RejectedError
from cortex.domain.timeouts import clipped
from cortex.durable.structuring import Problem

REASONS_MAX: Final = 5
CHARS_MAX: Final = 200
NOT_TRIED: Final = frozenset({"pattern", "patternProperties", "format"})
"""A regular expression may take for ever; the server checks them itself."""

_NAMED: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples"})


def problems(schema: Mapping[str, Any], value: Any, *, what: str) -> tuple[Problem, ...]:
    """Return the misfits of a value. Raises `RejectedError` for a schema that cannot be used."""
    from jsonschema import SchemaError  # noqa: PLC0415 -- with the library only
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    try:
        plain = _without(schema)
        kind = validator_for(plain)
        kind.check_schema(plain)
        found = kind(plain, registry=Registry()).iter_errors(value)
        return tuple(
            Problem(tuple(each.absolute_path), f"does not fit: {clipped(each.message, CHARS_MAX)}")
            for each, _ in zip(found, range(REASONS_MAX), strict=False)
        )
    except (SchemaError, Unresolvable, RecursionError, TypeError, ValueError) as error:
        text = getattr(error, "message", str(error)) or type(error).__name__
        raise RejectedError(f"{what} is not a usable JSON Schema: {text:.200}") from error


def _without(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without what is not tried; `names`: the keys are names of properties."""
    if isinstance(schema, Mapping):
        return {
            key: value
            if not names and key in _VALUES
            else _without(value, names=not names and key in _NAMED)
            for key, value in schema.items()
            if names or key not in NOT_TRIED
        }
    if isinstance(schema, list):
        return [_without(each) for each in schema]
    return schema


def editable(schema: Any) -> dict[str, Any]:
    """Return a schema for the check of arguments that people edit before they approve a call.

    That check refuses what it cannot judge. So what it does not know is left out here: the call
    itself is checked with the whole schema.
    """
    if not isinstance(schema, Mapping):
        return {}
    kept = {key: value for key, value in schema.items() if key in SAYS_NOTHING | _KEPT}
    kind = schema.get("type")
    if isinstance(kind, list):
        del kept["type"]
        return {**_described(kept), "anyOf": [editable({**schema, "type": each}) for each in kind]}
    if not isinstance(kind, str):
        return _described(kept) | ({"enum": schema["enum"]} if "enum" in schema else {})
    if isinstance(schema.get("properties"), Mapping):
        kept["properties"] = {k: editable(each) for k, each in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), Mapping):
        kept["additionalProperties"] = editable(schema["additionalProperties"])
    if "items" in kept:
        kept["items"] = editable(schema["items"])
    return kept


_KEPT: Final = KEYWORDS - {"anyOf", "format"}


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key in SAYS_NOTHING}
