"""JSON Schemas for the answers of models, in the form that every provider's structured mode takes.

Providers compile a schema into a grammar: they take closed objects, lists, choices and unions, and
neither recursion nor free keys. Bounds such as `minimum` become part of the description, and the
answer is checked against them here. What cannot be expressed is refused with its place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from cortex.domain.argument_check import SAYS_NOTHING, misfits
from cortex.domain.canonical import field_of

Schema = dict[str, Any]
Path = tuple[str | int, ...]

BYTES_MAX: Final = 65_536
DEPTH_MAX: Final = 32
PARTS_MAX: Final = 5_000
"""Once each reference is written out, which may multiply them; OpenAI takes as many properties."""
VALUE: Final = "value"
"""The one property of the object around an answer that is no object: providers want an object."""

_TEXT_BOUNDS: Final = frozenset({"minLength", "maxLength"})
_NUMBER_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_LIST_BOUNDS: Final = frozenset({"minItems", "maxItems"})
BOUNDS: Final = _TEXT_BOUNDS | _NUMBER_BOUNDS | _LIST_BOUNDS
_ANNOTATIONS: Final = SAYS_NOTHING | {"examples", "$schema", "$id", "$comment", "readOnly"}
_STRUCTURE: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "format", "anyOf"}
)
_REPLACED: Final = frozenset(
    {"$ref", "$defs", "definitions", "const", "oneOf", "allOf", "discriminator"}
)
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_FORMATS: Final = frozenset({"uuid", "date", "date-time"})
_IN_WORDS: Final = "say it in the description"
WAYS_OUT: Final[Mapping[str, str]] = {
    "patternProperties": "use a list of objects with a key and a value",
    "prefixItems": "use an object with named properties",
    "not": _IN_WORDS,
    "if": "use anyOf",
}


class OutputSchemaError(ValueError):
    """A schema that no provider takes: `path` says where, the text says why and the way out."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{field_of(path)} {reason}".strip())
        self.path = path
        self.reason = reason


@attrs.frozen(kw_only=True)
class StrictSchema:
    """A schema in the form that providers take."""

    schema: Schema
    is_wrapped: bool
    """The answer is no object, and stands under `VALUE` in one."""


def strict(schema: Mapping[str, Any], *, is_checked_elsewhere: bool = False) -> StrictSchema:
    """Return the schema in the form that providers take.

    Closed objects, no references, bounds in the description. `is_checked_elsewhere`: a type checks
    the answer, so that keywords which refuse values are only described. Raises `OutputSchemaError`.
    """
    try:
        size = len(orjson.dumps(schema))
    except TypeError as error:
        raise OutputSchemaError((), f"is not JSON: {error}") from error
    if size > BYTES_MAX:
        raise OutputSchemaError((), f"has {size:,} bytes, at most {BYTES_MAX:,}")
    made = _Strict(schema, is_checked_elsewhere=is_checked_elsewhere).part(schema, (), ())
    is_wrapped = made.get("type") != "object"
    if is_wrapped:
        made = _closed({VALUE: made}, [VALUE])
    return StrictSchema(schema=made, is_wrapped=is_wrapped)


def counts(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many properties of a strict schema may be missing, and how many parts are unions.

    Providers bound these: each one multiplies what their grammar has to know.
    """
    properties = schema.get("properties", {})
    optional = len(properties) - len(schema.get("required", properties))
    members = schema.get("anyOf", ())
    unions = int(bool(members))
    items = [schema["items"]] if "items" in schema else []
    for each in (*properties.values(), *members, *items):
        more = counts(each)
        optional, unions = optional + more[0], unions + more[1]
    return optional, unions


def check_answer(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return what is wrong with an answer to a schema that `strict` takes, with the fields."""
    plain = _Strict(schema, is_checked_elsewhere=False).checkable(schema)
    found = [f"{each.field} {each.reason}".strip() for each in misfits(_unbounded(plain), value)]
    return found or [
        f"{field_of(path)} {reason}".strip() for path, reason in _over(plain, value, ())
    ]


def _closed(properties: Schema, required: Sequence[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class _Strict:
    """Rewrites a schema, part by part."""

    def __init__(self, root: Mapping[str, Any], *, is_checked_elsewhere: bool) -> None:
        self._root = root
        self._is_lax = is_checked_elsewhere
        self._keeps_bounds = False
        self._count = 0

    def checkable(self, schema: Mapping[str, Any]) -> Schema:
        """Return the schema without references and with its bounds, to check answers."""
        self._keeps_bounds = True
        return self.part(schema, (), ())

    def part(self, given: object, path: Path, outer: tuple[str, ...]) -> Schema:
        if not isinstance(given, Mapping):
            raise OutputSchemaError(path, f"must be a schema, got {given!r:.80}")
        if len(path) > DEPTH_MAX:
            raise OutputSchemaError(path, f"is nested deeper than {DEPTH_MAX} levels")
        self._count += 1
        if self._count > PARTS_MAX:
            reason = f"has more than {PARTS_MAX:,} parts, each reference written out: ask for less"
            raise OutputSchemaError((), reason)
        schema, outer = self._resolved(given, path, outer)
        if "allOf" in schema:
            return self.part(_joined(schema, path), path, outer)
        self._refuse_unknown(schema, path)
        schema = _simplified(schema)
        made: Schema = {}
        if "anyOf" in schema:
            made["anyOf"] = [
                self.part(each, (*path, "anyOf", place), outer)
                for place, each in enumerate(_listed(schema["anyOf"], (*path, "anyOf")))
            ]
        elif "enum" in schema:
            made |= _choice(schema, path)
        else:
            made |= self._of_kind(schema, path, outer)
        return made | self._described(schema)

    def _resolved(
        self, schema: Mapping[str, Any], path: Path, outer: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Put what a reference names in its place."""
        while "$ref" in schema:
            name = schema["$ref"]
            if name in outer or name == "#":
                reason = "contains itself, which no provider takes: write out as many levels as"
                raise OutputSchemaError((*path, "$ref"), f"{reason} an answer may have")
            found: object = self._root
            parts = str(name).removeprefix("#/").split("/")
            for part in parts if str(name).startswith("#/") else ():
                found = found.get(part) if isinstance(found, Mapping) else None
            if not isinstance(found, Mapping) or found is self._root:
                raise OutputSchemaError(
                    (*path, "$ref"), f"names nothing in this schema: {name!r:.80}"
                )
            outer = (*outer, str(name))
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**found, **rest}
        return schema, outer

    def _refuse_unknown(self, schema: Mapping[str, Any], path: Path) -> None:
        known = _STRUCTURE | _REPLACED | _ANNOTATIONS | BOUNDS
        unknown = next((name for name in schema if name not in known), None)
        if unknown is not None and not self._is_lax:
            way_out = WAYS_OUT.get(unknown, _IN_WORDS)
            raise OutputSchemaError(
                (*path, unknown), f"is a keyword that models are not held to: {way_out}"
            )

    def _of_kind(self, schema: Mapping[str, Any], path: Path, outer: tuple[str, ...]) -> Schema:
        kind = schema.get("type")
        if not isinstance(kind, str) or kind not in _TYPES:
            got = "it has none" if kind is None else f"got {kind!r:.80}"
            known = ", ".join(sorted(_TYPES))
            raise OutputSchemaError((*path, "type"), f"must be one of {known}; {got}")
        made: Schema = {"type": kind}
        if kind == "object":
            made |= self._object(schema, path, outer)
        elif kind == "array":
            if "items" not in schema:
                raise OutputSchemaError((*path, "items"), "is missing: say what the list contains")
            made["items"] = self.part(schema["items"], (*path, "items"), outer)
        elif kind == "string" and "format" in schema:
            if schema["format"] in _FORMATS:
                made["format"] = schema["format"]
            elif not self._is_lax:
                known = ", ".join(sorted(_FORMATS))
                reason = f"must be one of {known}, got {schema['format']!r:.80}: {_IN_WORDS}"
                raise OutputSchemaError((*path, "format"), reason)
        bounds = {name: schema[name] for name in sorted(BOUNDS) if name in schema}
        for name, bound in bounds.items():
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise OutputSchemaError((*path, name), f"must be a number, got {bound!r:.80}")
        return made | bounds if self._keeps_bounds else made

    def _object(self, schema: Mapping[str, Any], path: Path, outer: tuple[str, ...]) -> Schema:
        others = schema.get("additionalProperties", False)
        properties = schema.get("properties")
        if isinstance(others, Mapping) or (others is True and not properties) or not properties:
            raise OutputSchemaError(
                (*path, "additionalProperties" if others else "properties"),
                "leaves the keys free, which no provider takes: name them under properties, or use "
                "a list of objects with a key and a value",
            )
        if not isinstance(properties, Mapping):
            raise OutputSchemaError((*path, "properties"), "must be schemas by their names")
        parts = {
            name: self.part(each, (*path, "properties", name), outer)
            for name, each in properties.items()
        }
        required = schema.get("required", [])
        if not isinstance(required, list | tuple):
            raise OutputSchemaError((*path, "required"), f"must be a list, got {required!r:.80}")
        wrong = next(
            (each for each in required if not isinstance(each, str) or each not in properties), None
        )
        if wrong is not None:
            raise OutputSchemaError((*path, "required"), f"names {wrong!r:.80}, no property")
        return _closed(parts, list(dict.fromkeys(required)))

    def _described(self, schema: Mapping[str, Any]) -> Schema:
        """Return the description: it is all that the model sees of bounds."""
        unseen = {**schema}
        for name in _STRUCTURE | _REPLACED | _ANNOTATIONS:
            unseen.pop(name, None)
        if schema.get("format") not in _FORMATS and "format" in schema:
            unseen["format"] = schema["format"]
        words = [str(schema["description"])] if schema.get("description") else []
        if unseen and not self._keeps_bounds:
            words.append(f"({', '.join(f'{name}: {value}' for name, value in unseen.items())})")
        return {"description": " ".join(words)} if words else {}


def _simplified(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with one keyword for each thing: enum for const, anyOf for unions."""
    made = dict(schema)
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    kinds = made.get("type")
    if isinstance(kinds, list):
        rest = {name: value for name, value in made.items() if name != "type"}
        nulls = [{"type": "null"}] if "null" in kinds else []
        real = [{**rest, "type": each} for each in kinds if each != "null"]
        if "enum" in made:
            return {**rest}
        return {"anyOf": [*real, *nulls]}
    return made


def _joined(schema: Mapping[str, Any], path: Path) -> Schema:
    """Return a schema with what its `allOf` of one schema says."""
    rest = {name: value for name, value in schema.items() if name != "allOf"}
    parts = _listed(schema["allOf"], (*path, "allOf"))
    if len(parts) > 1:
        raise OutputSchemaError((*path, "allOf"), "joins schemas: write out the one they make")
    if not isinstance(parts[0], Mapping):
        raise OutputSchemaError((*path, "allOf", 0), f"must be a schema, got {parts[0]!r:.80}")
    return {**parts[0], **rest}


def _listed(value: object, path: Path) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise OutputSchemaError(path, f"must be a list of schemas, got {value!r:.80}")
    return value


def _choice(schema: Mapping[str, Any], path: Path) -> Schema:
    values = _listed(schema["enum"], (*path, "enum"))
    wrong = [each for each in values if isinstance(each, list | dict)]
    if wrong:
        raise OutputSchemaError((*path, "enum"), f"must have plain values, got {wrong[0]!r:.80}")
    kind = schema.get("type")
    is_type = isinstance(kind, str) and kind in _TYPES
    return {"enum": list(values)} | ({"type": kind} if is_type else {})


def _unbounded(schema: Any) -> Any:
    """Return a schema without its bounds: what `misfits` takes."""
    if isinstance(schema, list):
        return [_unbounded(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: value for name, value in schema.items() if name not in BOUNDS}
    for name in ("items", "anyOf"):
        if name in made:
            made[name] = _unbounded(made[name])
    if "properties" in made:
        made["properties"] = {name: _unbounded(each) for name, each in made["properties"].items()}
    return made


_CHECKS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "must be at least"),
    "maximum": (lambda value, bound: value <= bound, "must be at most"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "must be above"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "must be below"),
    "minLength": (lambda value, bound: len(value) >= bound, "must have a length of at least"),
    "maxLength": (lambda value, bound: len(value) <= bound, "must have a length of at most"),
    "minItems": (lambda value, bound: len(value) >= bound, "must have as many items as"),
    "maxItems": (lambda value, bound: len(value) <= bound, "must have no more items than"),
}


def _over(schema: Mapping[str, Any], value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the bounds that a value of the right type breaks."""
    if "anyOf" in schema:
        fitting = [each for each in schema["anyOf"] if not misfits(_unbounded(each), value)]
        broken = [list(_over(each, value, path)) for each in fitting]
        if all(broken):
            yield from broken[0] if broken else ()
        return
    bounds = _bounds_of(value)
    for name in schema.keys() & bounds:
        holds, words = _CHECKS[name]
        if not holds(value, schema[name]):
            yield path, f"{words} {schema[name]}, got {value!r:.80}"
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _over(schema.get("items", {}), item, (*path, place))
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _over(schema.get("properties", {}).get(name, {}), item, (*path, name))


def _bounds_of(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return _TEXT_BOUNDS
    if isinstance(value, list):
        return _LIST_BOUNDS
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _NUMBER_BOUNDS if is_number else frozenset()
