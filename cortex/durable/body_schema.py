"""JSON schemas of what others POST: checked when a job names them, so that none of them lies."""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import orjson

from cortex.domain.argument_check import FORMATS, KEYWORDS, KINDS, SAYS_NOTHING
from cortex.domain.canonical import Path, field_of
from cortex.domain.errors import UsageError
from cortex.durable.argument_schema import schema_of_type
from cortex.durable.json_schema import Schema

BYTES_MAX: Final = 65_536
_ANNOTATIONS: Final = SAYS_NOTHING | {"$schema", "$id", "$comment", "examples"}
_FORMS: Final = {"properties": dict, "anyOf": list, "required": list, "enum": list}


def body_schema(wanted: Any, *, what: str) -> Schema | None:
    """Return the schema of a body from a JSON schema or a type; None: any JSON.

    Objects may have more keys than the type, since senders add some. Raises `UsageError` for a
    keyword that would not be checked.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping):
        if not isinstance(wanted, Hashable) or not (schema := schema_of_type(wanted)):
            raise UsageError(
                f"{what}: schema {wanted!r:.80} is no type with a JSON form",
                hint="write a type, such as a dataclass, or a JSON schema",
            )
        opened: Schema = _open(schema)
        return opened
    try:
        text = orjson.dumps(wanted)
    except TypeError as error:
        raise UsageError(f"{what}: schema is not JSON: {error}") from error
    if len(text) > BYTES_MAX:
        raise UsageError(f"{what}: schema is {len(text):,} bytes, more than {BYTES_MAX:,}")
    return _Checked(what).part(orjson.loads(text), ())


class _Checked:
    def __init__(self, what: str) -> None:
        self._what = what

    def part(self, schema: Any, path: Path) -> Schema:
        """Return a schema without its annotations, and one type in each of its parts."""
        if not isinstance(schema, dict):
            raise self._wrong(path, f"is not an object, got {schema!r:.40}")
        made = {name: value for name, value in schema.items() if name not in _ANNOTATIONS}
        if isinstance(kinds := made.get("type"), list):
            return self.part({"anyOf": [made | {"type": each} for each in kinds]}, path)
        self._refuse(made, path)
        if isinstance(others := made.get("additionalProperties"), dict):
            made["additionalProperties"] = self.part(others, (*path, "additionalProperties"))
        if "items" in made:
            made["items"] = self.part(made["items"], (*path, "items"))
        if "properties" in made:
            made["properties"] = {
                name: self.part(each, (*path, "properties", name))
                for name, each in made["properties"].items()
            }
        if "anyOf" in made:
            made["anyOf"] = [
                self.part(each, (*path, "anyOf", place)) for place, each in enumerate(made["anyOf"])
            ]
        return made

    def _refuse(self, schema: Schema, path: Path) -> None:
        for name in schema:
            if name not in KEYWORDS:
                hint = f"leave it out and check in the job; known: {', '.join(sorted(KEYWORDS))}"
                raise self._wrong(path, f"has keyword {name!r:.40}, which is not checked", hint)
        for name, known in (("type", KINDS), ("format", FORMATS)):
            value = schema.get(name)
            if name in schema and not (isinstance(value, str) and value in known):
                hint = f"one of {', '.join(sorted(known))}"
                raise self._wrong((*path, name), f"is {value!r:.40}", hint)
        for name, form in _FORMS.items():
            if not isinstance(schema.get(name, form()), form):
                raise self._wrong((*path, name), f"is not a {form.__name__}")

    def _wrong(self, path: Path, reason: str, hint: str | None = None) -> UsageError:
        where = f" at {field_of(path)}" if path else ""
        return UsageError(f"{self._what}: schema{where} {reason}", hint=hint)


def _open(schema: Any) -> Any:
    """Return the schema of a type with objects that may have more keys."""
    if isinstance(schema, list):
        return [_open(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _open(value)
        for name, value in schema.items()
        if not (name == "additionalProperties" and value is False)
    }
