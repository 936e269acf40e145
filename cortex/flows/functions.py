"""What the expressions of flows may call, and how their values behave."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import orjson

from cortex.domain.errors import InvalidValueError

TEXT_MAX: Final = 262_144
"""Characters of a text that a function makes."""
LIST_MAX: Final = 10_000
NUMBER_CHARS_MAX: Final = 32
SHOWN_CHARS: Final = 60

Json: TypeAlias = Any


class ExpressionError(InvalidValueError):
    """An expression that cannot be read, or that cannot be evaluated on these values."""

    code = "expression"


def equal(left: Json, right: Json) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def contains(whole: Json, part: Json) -> bool:
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    if isinstance(whole, list):
        return any(equal(each, part) for each in whole)
    if isinstance(whole, Mapping) and isinstance(part, str):
        return part in whole
    raise ExpressionError(f"{kind(whole)} cannot contain {kind(part)}")


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def shown(value: Json) -> str:
    return as_text(value)[:SHOWN_CHARS]


def as_text(value: Json) -> str:
    """Return a value as it stands in a text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else as_json(value).decode()


def as_json(value: Json) -> bytes:
    """Return a value as JSON; raises `ExpressionError` for a very deep or a very large one."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ExpressionError(f"a value cannot be written as JSON: {error}") from error


@attrs.frozen
class Function:
    """A function of expressions, with how many arguments it takes."""

    run: Callable[..., Json]
    counts: tuple[int, int]
    doc: str


def _text(value: Json, function: str) -> str:
    if not isinstance(value, str):
        raise ExpressionError(f"{function}() takes a text, not {kind(value)}")
    return value


def _list(value: Json, function: str) -> list[Json]:
    if not isinstance(value, list):
        raise ExpressionError(f"{function}() takes a list, not {kind(value)}")
    return value


def _object(value: Json, function: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise ExpressionError(f"{function}() takes an object, not {kind(value)}")
    return value


def _length(value: Json) -> int:
    if isinstance(value, str | list | Mapping):
        return len(value)
    raise ExpressionError(f"length() takes a text, a list or an object, not {kind(value)}")


def _join(items: Json, separator: Json = ", ") -> str:
    texts = [as_text(each) for each in _list(items, "join")]
    between = _text(separator, "join")
    size = sum(map(len, texts)) + len(between) * len(texts)
    if size > TEXT_MAX:
        raise ExpressionError(f"join() makes {size:,} characters, at most {TEXT_MAX:,}")
    return between.join(texts)


def _split(text: Json, separator: Json) -> list[str]:
    between = _text(separator, "split")
    if not between:
        raise ExpressionError("split() has an empty separator")
    parts = _text(text, "split").split(between, LIST_MAX)
    if len(parts) > LIST_MAX:
        raise ExpressionError(f"split() makes more than {LIST_MAX:,} parts")
    return parts


def _range(count: Json) -> list[int]:
    if not is_whole(count) or not 0 <= count <= LIST_MAX:
        raise ExpressionError(f"range() takes 0 to {LIST_MAX:,}, not {shown(count)}")
    return list(range(count))


def _number(value: Json) -> Json:
    if is_number(value):
        return value
    text = _text(value, "number").strip()
    if len(text) <= NUMBER_CHARS_MAX:
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            parsed = None
        if is_number(parsed) and math.isfinite(parsed):
            return parsed
    raise ExpressionError(f"number() cannot read {text!r:.60}")


def _parse_json(text: Json) -> Json:
    try:
        return orjson.loads(_text(text, "parse_json"))
    except orjson.JSONDecodeError as error:
        raise ExpressionError(f"parse_json() cannot read this: {error}") from error


def _to_json(value: Json) -> str:
    text = as_json(value).decode()
    if len(text) > TEXT_MAX:
        raise ExpressionError(f"json() makes {len(text):,} characters, at most {TEXT_MAX:,}")
    return text


def _end(items: Json, *, at: int, function: str) -> Json:
    found = _list(items, function)
    return found[at] if found else None


def _of_text(method: Callable[[str], Json], function: str) -> Callable[[Json], Json]:
    return lambda value: method(_text(value, function))


def _affix(method: Callable[[str, str], bool], function: str) -> Callable[[Json, Json], bool]:
    return lambda whole, part: method(_text(whole, function), _text(part, function))


def _entries(method: Callable[[Any], Sequence[Json]], function: str) -> Callable[[Json], Json]:
    return lambda value: list(method(_object(value, function)))


FUNCTIONS: Final[Mapping[str, Function]] = {
    "contains": Function(contains, (2, 2), "whether a text, list or object has it"),
    "default": Function(lambda first, _: first, (2, 2), "the second, if the first is missing"),
    "ends_with": Function(_affix(str.endswith, "ends_with"), (2, 2), "whether a text ends so"),
    "first": Function(partial(_end, at=0, function="first"), (1, 1), "the first item, or null"),
    "join": Function(_join, (1, 2), "the items of a list as one text"),
    "json": Function(_to_json, (1, 1), "a value as JSON"),
    "keys": Function(_entries(list, "keys"), (1, 1), "the keys of an object"),
    "last": Function(partial(_end, at=-1, function="last"), (1, 1), "the last item, or null"),
    "length": Function(_length, (1, 1), "of a text, list or object"),
    "lower": Function(_of_text(str.lower, "lower"), (1, 1), "a text in small letters"),
    "number": Function(_number, (1, 1), "a text as a number"),
    "parse_json": Function(_parse_json, (1, 1), "the value of a JSON text"),
    "range": Function(_range, (1, 1), "that many numbers, from 0 on"),
    "split": Function(_split, (2, 2), "the parts of a text"),
    "starts_with": Function(_affix(str.startswith, "starts_with"), (2, 2), "whether it begins so"),
    "text": Function(as_text, (1, 1), "a value as text"),
    "trim": Function(_of_text(str.strip, "trim"), (1, 1), "a text without blanks around it"),
    "upper": Function(_of_text(str.upper, "upper"), (1, 1), "a text in capitals"),
    "values": Function(
        _entries(lambda o: list(o.values()), "values"), (1, 1), "the values of an object"
    ),
}
