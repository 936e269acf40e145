"""Canonical JSON: one text for one value, so that equal digests mean equal values.

Keys are sorted, there are no blanks, text is UTF-8. Numbers stay as they are: 1 and 1.0 differ, and
a whole number may have any length. Values that cannot be stored are refused and never repaired:
people approve exactly what runs.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

from cortex.domain.errors import InvalidValueError
from cortex.domain.redaction import LONE_SURROGATE
from cortex.domain.safe import safe

# --- Paths in a JSON value: as people write them, and as they read them.


Path: TypeAlias = tuple[str | int, ...]

MISSING: Final = object()
"""The result for a path without a value."""
WHOLE: Final = "(all)"
"""The text of the empty path: the value itself."""

_INDEX_DIGITS_MAX: Final = 9


def find(value: Any, dotted: str) -> Any:
    """Return the value at a dotted path (`order.lines.0.price`), or `MISSING`."""
    for step in dotted.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def field_of(path: Path) -> str:
    """Return a path as people read it, with nothing hidden in it: `order.lines[0].price`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("-", "_").isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return safe(text) or WHOLE


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdecimal() and len(step) <= _INDEX_DIGITS_MAX


# ---


DEPTH_MAX: Final = 64
DIGITS_MAX: Final = 1_000
"""Of a whole number: longer ones take Python quadratic time."""


def canonical(value: Any, *, what: str = "arguments") -> str:
    """Return a value of JSON's own types as canonical text.

    Raises `InvalidValueError` with the path, for other types, NaN and infinities, NUL, lone
    surrogates, keys that are not text, numbers too long and nesting too deep.
    """
    _check(value, what, ())
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def digest(text: str) -> bytes:
    """Return the SHA-256 of canonical text."""
    return hashlib.sha256(text.encode()).digest()


def parse(text: str, *, what: str = "arguments") -> Any:
    """Read JSON strictly, keeping its numbers: `parse(canonical(value)) == value`.

    Raises `InvalidValueError` where `canonical` would, and for a repeated key.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValueError(f"{what} has the key {twice!r} twice")
        return members

    def whole(digits: str) -> int:
        return int(digits) if len(digits) <= DIGITS_MAX else _refuse(what, _TOO_LONG)

    try:
        value = json.loads(text, object_pairs_hook=members, parse_int=whole)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidValueError(f"{what} is not JSON at {where}: {error.msg}") from error
    except RecursionError:
        _refuse(what, TOO_DEEP)
    _check(value, what, ())
    return value


TOO_DEEP: Final = f"is nested deeper than {DEPTH_MAX} levels"
_TOO_LONG: Final = f"is a number of more than {DIGITS_MAX:,} digits"


def _check(value: Any, what: str, path: Path) -> None:
    if len(path) > DEPTH_MAX:
        _refuse(what, TOO_DEEP)
    match value:
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    _refuse(_place(what, path), f"has the key {key!r}, but JSON keys are text")
                _check_scalar(key, what, (*path, key))
                _check(item, what, (*path, key))
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, what, (*path, index))
        case _:
            _check_scalar(value, what, path)


def _check_scalar(value: Any, what: str, path: Path) -> None:
    match value:
        case None | bool():
            return
        case int():
            wrong = _TOO_LONG if abs(value) >= 10**DIGITS_MAX else None
        case float():
            is_number = math.isfinite(value)
            wrong = None if is_number else f"is {value}, which JSON does not have"
        case str():
            wrong = wrong_text(value)
        case _:
            wrong = f"is {type(value).__name__}, which JSON has no form for"
    if wrong is not None:
        _refuse(_place(what, path), wrong)


def wrong_text(text: str) -> str | None:
    """Return why Postgres cannot store a text, or None if it can."""
    if "\0" in text:
        return "holds a NUL character, which Postgres cannot store"
    return "holds half of a surrogate pair" if LONE_SURROGATE.search(text) else None


def _place(what: str, path: Path) -> str:
    return f"{what}: {field_of(path)}" if path else what


def _refuse(place: str, reason: str) -> NoReturn:
    raise InvalidValueError(f"{place} {reason}")


# --- JSON that is nested too deeply for recursive code.


NESTING_MAX: Final = 254
"""The most that orjson writes, so JSON from Cortex is never deeper; Postgres takes several
thousand."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def is_deep(text: str) -> bool:
    """Return whether JSON, or the beginning of some, is nested deeper than `NESTING_MAX`."""
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case _:
                pass  # a string
        if depth > NESTING_MAX:
            return True
    return False
