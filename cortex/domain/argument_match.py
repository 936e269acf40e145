"""Patterns for the arguments of a call, as people write them in YAML.

    to: "*@example.com"              text: a glob, case counts
    urgent: true                     a number, true, false or null: the same value
    amount: {gt: 500, le: 1000}      gt, ge, lt, le: numbers
    to: {not: "*@example.com"}
    country: {in: [CH, "D*"]}

An argument is found by its dotted path. One that is missing, or of another type than the pattern,
neither matches nor fails to: the answer is None, and who asks decides what is safe.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from cortex.domain.json_path import MISSING, find
from cortex.domain.text import LONE_SURROGATE

_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_OPERATORS: Final = (*_ORDERS, "not", "in")


def matches(patterns: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool | None:
    """Whether the arguments match all patterns; None if one of them cannot tell."""
    return _all(_match(pattern, find(arguments, path)) for path, pattern in patterns.items())


def refusal(path: str, pattern: Any) -> str | None:
    """Say what is wrong with a pattern, reading on from its path; None if nothing is."""
    if not all(path.split(".")):
        return "is no path to an argument"
    if not isinstance(pattern, dict):
        return None if _is_scalar(pattern) else f"must be {_SCALARS} or a comparison{_got(pattern)}"
    if not pattern:
        return f"compares with nothing; known: {', '.join(_OPERATORS)}"
    return next(filter(None, (_refusal(name, to) for name, to in pattern.items())), None)


_SCALARS: Final = "text, a number, true, false, null"


def _refusal(name: str, to: Any) -> str | None:
    if name not in _OPERATORS:
        return f"has the unknown comparison {name!r}; known: {', '.join(_OPERATORS)}"
    if name in _ORDERS:
        return None if _is_number(to) else f"has {name}, which must be a number{_got(to)}"
    if name == "not":
        return None if _is_scalar(to) else f"has not, which must be {_SCALARS}{_got(to)}"
    is_list = isinstance(to, list) and bool(to) and all(map(_is_scalar, to))
    return None if is_list else f"has in, which must be a list of {_SCALARS}{_got(to)}"


def _got(value: Any) -> str:
    return f", got {value!r:.80}"


def _match(pattern: Any, value: Any) -> bool | None:
    if not isinstance(pattern, dict):
        return _equal(pattern, value)
    return _all(_compare(name, to, value) for name, to in pattern.items())


def _compare(name: str, to: Any, value: Any) -> bool | None:
    if name == "not":
        return _not(_equal(to, value))
    if name == "in":
        return _not(_all(_not(_equal(each, value)) for each in to))
    return _ORDERS[name](value, to) if _is_number(value) else None


def _equal(pattern: Any, value: Any) -> bool | None:
    """Null compares with everything, anything else with its own type only: true is not 1."""
    if value is MISSING:
        return None
    if pattern is None:
        return value is None
    if isinstance(pattern, str):
        return fnmatchcase(value, pattern) if isinstance(value, str) else None
    if isinstance(pattern, bool):
        return value is pattern if isinstance(value, bool) else None
    return bool(value == pattern) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (isinstance(value, int) or math.isfinite(value))


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value and LONE_SURROGATE.search(value) is None
    return value is None or isinstance(value, bool) or _is_number(value)


# Logic of three values: None is "cannot tell".


def _not(answer: bool | None) -> bool | None:  # noqa: FBT001 -- what it negates
    return None if answer is None else not answer


def _all(answers: Iterable[bool | None]) -> bool | None:
    found = set(answers)
    return False if False in found else None if None in found else True
