"""JSON in and out of the record: what Postgres cannot store is refused or made visible.

Values are plain types, or values that `structuring.converter` makes plain. NaN and infinities are
refused: JSON has none. NUL and lone surrogates, which models and tools do produce, become U+FFFD:
a job must never be stuck because its text cannot be stored. Secrets are redacted on the way in,
not only by the database's port, so that a replay sees the same as the record.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import date, time
from enum import Enum
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain import redaction
from cortex.domain.canonical import DEPTH_MAX, TOO_DEEP, wrong_text
from cortex.domain.errors import InvalidValueError
from cortex.domain.hot import hot
from cortex.domain.key_shapes import masked
from cortex.domain.limits import PAYLOAD, RESULT, SizeLimit
from cortex.domain.redaction import LONE_SURROGATE, storable
from cortex.durable.heavy_values import TEXT, refuse_heavy, scarce
from cortex.durable.shortened_inputs import shortened
from cortex.durable.structuring import converter

PAYLOAD_BYTES_MAX: Final = PAYLOAD.bytes_max
MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")
"""A whole number with this many digits may not fit into 64 bits; a search is cheaper than
counting."""
INPUT_BYTES_MAX: Final = 4096
"""The most of a step's input that the record keeps."""

_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def encode(value: Any, *, what: str, limit: SizeLimit | None = RESULT) -> str:
    """Return a value as JSON text that Postgres can store, its keys sorted, secrets redacted.

    Raises `InvalidValueError` that names `what` for values that are no JSON, too deep or too large.
    """
    if value is None:
        return "null"
    is_plain = type(value) in _PLAIN
    plain = value if is_plain else _unstructure(value, what)
    if scarce.memory:
        refuse_heavy(plain, what, TEXT if limit is None else limit)
    dumped = _dump(plain, what, has_floats=not is_plain)
    text = dumped.decode()
    if redaction.knows_any():
        text = redaction.redact(text)
    if limit is not None and len(dumped) > limit.bytes_max:
        limit.check(len(dumped), what=what)
    return text


def decode(text: str | None) -> Any:
    """Return the value that `encode` wrote; None for a missing one."""
    return None if text is None else orjson.loads(text)


@hot
class StepInput:
    """The input of a step. Equal inputs have equal digests on any pod."""

    digest: bytes
    _json: bytes = attrs.field(repr=False)

    @property
    def kept(self) -> str:
        """The text that the record keeps for people.

        Without secrets and keys of others; long values are cut visibly. The digest is of the whole.
        """
        text = masked(redaction.redact(self._json.decode()))
        if len(text) * 4 <= INPUT_BYTES_MAX or len(text.encode()) <= INPUT_BYTES_MAX:
            return text
        return shortened(text, INPUT_BYTES_MAX)

    def has_digest(self, digest: bytes, *, renamed: Mapping[str, str]) -> bool:
        """Return whether this is the input of a digest, with some of its names replaced."""
        values = orjson.loads(self._json)
        other = {renamed.get(name, name): value for name, value in values.items()}
        return input_of_json(orjson.dumps(other, option=_OPTIONS)).digest == digest


def input_of(given: dict[str, Any], *, what: str) -> StepInput:
    """Return a step's input: the values it is given, by name.

    Raises `InvalidValueError` naming `what` if a value is no JSON.
    """
    # Most steps are given nothing else: this saves 3 of the 20 us per step.
    is_plain = _PLAIN.issuperset(map(type, given.values()))
    if is_plain and not given:
        return NO_INPUT
    plain = given if is_plain else _unstructure(given, what)
    if scarce.memory:
        refuse_heavy(plain, what, TEXT)
    return input_of_json(_dump(plain, what, has_floats=not is_plain))


def input_of_json(text: bytes) -> StepInput:
    """Return the input for JSON text that exists already."""
    return StepInput(hashlib.blake2b(text, digest_size=16).digest(), text)


NO_INPUT: Final = input_of_json(b"{}")


def parse_payload(text: str | bytes, *, what: str = "payload") -> str:
    """Check JSON text from outside and return it compact.

    Raises `InvalidValueError` for text that is no JSON object, or contains NaN or NUL, or is too
    large or too deep.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    PAYLOAD.check(len(raw), what=what)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidValueError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidValueError(
            f"{what} must be a JSON object, not {type(value).__name__}",
            hint='the keys are the handler\'s arguments: {"name": "value"}',
        )
    refuse_unstorable(value, what)
    if MANY_DIGITS.search(raw):
        # orjson silently turns a whole number that is too large for it into a float.
        json.loads(raw, parse_int=lambda digits: _whole(digits, what))
    return orjson.dumps(value).decode()


def _whole(digits: str, what: str) -> int:
    if not -(2**63) <= (number := int(digits[:30])) < 2**64:
        raise InvalidValueError(
            f"{what} holds {digits[:30]}, which does not fit into 64 bits", hint="send it as text"
        )
    return number


def refuse_unstorable(value: Any, what: str) -> None:
    """Raise `InvalidValueError` where a value holds NaN, NUL, lone surrogates or is too deep."""
    if not _is_storable(value):
        _refuse_unstorable(value, what, 0)


def _is_storable(value: Any) -> bool:
    """Return whether a plain value can be stored, level by level; False if in doubt.

    Ten times as fast as naming the place of each value, which only a refusal needs: request bodies
    contain up to half a million of them.
    """
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        inner: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                if "\x00" in each or not (each.isascii() or LONE_SURROGATE.search(each) is None):
                    return False
            elif kind is dict:
                inner += each
                inner += each.values()
            elif kind is list:
                inner += each
            elif kind not in _PLAIN and not (kind is float and math.isfinite(each)):
                return False
        if not inner:
            return True
        level = inner
    return False


def _refuse_unstorable(value: Any, what: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidValueError(f"{what} {TOO_DEEP}")
    match value:
        case float() if not math.isfinite(value):
            raise InvalidValueError(f"{what} holds {value}, which JSON does not have")
        case str() if (wrong := wrong_text(value)) is not None:
            raise InvalidValueError(f"{what} {wrong}")
        case dict():
            for key, item in value.items():
                _refuse_unstorable(key, what, depth + 1)
                _refuse_unstorable(item, f"{what}.{key}", depth + 1)
        case list() | tuple():
            for item in value:
                _refuse_unstorable(item, what, depth + 1)
        case _:
            pass


_PLAIN: Final = frozenset({str, int, bool, type(None)})
JSON: Final = _PLAIN | {float, list, dict}


def as_json(values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Return values as JSON gives them back.

    Raises `InvalidValueError` that names `what` for values that are no JSON.
    """
    if _PLAIN.issuperset(map(type, values.values())):
        return dict(values)
    plain: dict[str, Any] = orjson.loads(_dump(_unstructure(dict(values), what), what))
    return plain


def _unstructure(value: Any, what: str) -> Any:
    try:
        return converter.unstructure(value)
    except RecursionError as error:
        raise InvalidValueError(f"{what} {TOO_DEEP}") from error
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{what} is not JSON: {error}") from error


def _dump(plain: Any, what: str, *, has_floats: bool = True) -> bytes:
    try:
        text = orjson.dumps(plain, option=_OPTIONS)
    except (TypeError, RecursionError):
        return _dump_strange(plain, what)
    # orjson writes NaN as null, and a NUL is valid in JSON but not in a Postgres text.
    may_be_deep = len(text) > DEPTH_MAX and text.count(b"[") + text.count(b"{") > DEPTH_MAX
    if may_be_deep or (has_floats and b"null" in text) or b"\\u0000" in text:
        return _dump_strange(plain, what)
    return text


def _dump_strange(value: Any, what: str) -> bytes:
    try:
        return orjson.dumps(_storable(value, what, 0), option=_OPTIONS)
    except (TypeError, RecursionError) as error:
        raise InvalidValueError(f"{what} is not JSON: {error}") from error


def _storable(value: Any, what: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise InvalidValueError(f"{what} {TOO_DEEP}")
    match value:
        case float() if not math.isfinite(value):
            raise InvalidValueError(f"{what} holds {value}, which JSON does not have")
        case Enum():
            return _storable(value.value, what, depth)
        case str():
            return storable(value)
        case dict():
            return {
                _storable(key, what, depth + 1): _storable(item, what, depth + 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_storable(item, what, depth + 1) for item in value]
        case None | bool() | int() | float() | date() | time() | UUID():
            return value
        case _:
            raise InvalidValueError(
                f"{what} is not JSON: {type(value).__name__} {value!r:.60}",
                hint="return plain types or attrs classes",
            )
