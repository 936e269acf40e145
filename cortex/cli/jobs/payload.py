"""A job's payload from the command line: inline, from a file or stdin, or from arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from cortex.cli.files import read_bytes
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.durable.codec import PAYLOAD_BYTES_MAX, parse_payload


def read_payload(given: str | None) -> str:
    """Return what `--payload` gives. Raises `InvalidValueError` that names place and error."""
    text = "{}" if given is None else _source(given)
    try:
        return parse_payload(text)
    except InvalidValueError as error:
        raise _with_hint(error, given) from error


def split_arguments(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return each `K=V` as its name and its value. Raises `UsageError`."""
    return [_split(each) for each in arguments]


def with_arguments(
    payload: str, arguments: Sequence[tuple[str, str]], schemas: Sequence[Mapping[str, Any]]
) -> str:
    """Return a payload overridden by each argument.

    An argument's value is JSON if it parses as JSON, else text; where all of the `schemas` take
    text it is text. Raises `InvalidValueError`.
    """
    if not arguments:
        return payload
    values = {name: _value(name, text, schemas) for name, text in arguments}
    return parse_payload(_dumped(orjson.loads(payload) | values))


def _source(given: str) -> str | bytes:
    if given == "-":
        return read_bytes("-", what="payload", bytes_max=PAYLOAD_BYTES_MAX)
    if given.startswith("@"):
        return read_bytes(given[1:], what="payload", bytes_max=PAYLOAD_BYTES_MAX)
    return given


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"argument {text!r} is not NAME=VALUE", hint="such as count=3")
    return name, value


def _value(name: str, text: str, schemas: Sequence[Mapping[str, Any]]) -> Any:
    kinds = [each.get("properties", {}).get(name, {}) for each in schemas]
    if kinds and all(map(_is_text, kinds)):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a schema takes any text, and nothing else but null."""
    members = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return all(each.get("type") == "string" and "enum" not in each for each in members)


def _dumped(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise InvalidValueError(f"payload is not JSON: {error}") from error


def _with_hint(error: InvalidValueError, given: str | None) -> InvalidValueError:
    """Add a hint for common shell mistakes."""
    if error.hint is not None or given is None or given == "-" or given.startswith("@"):
        return error
    if len(given) < 4096 and "\n" not in given and "\0" not in given and Path(given).is_file():  # noqa: PLR2004 -- longest path
        return InvalidValueError(error.message, hint=f"to read a file: --payload @{given}")
    hint = """quote it for the shell: --payload '{"name": "value"}', or use name=value"""
    return InvalidValueError(error.message, hint=hint)
