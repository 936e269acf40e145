"""The values that a step is given, by the names of its function's parameters.

They are what makes it the same step on a replay, beside its own name. So it does not matter how the
function is called in Python, where it is defined, whether a value is given by position or by name,
or which defaults the function has: a value counts only if it was given.

Values in a `functools.partial` count as given. What a function holds by itself does not: the
variables of a lambda or closure, the object of a bound method, and values in a `partial` that are
no JSON, such as a client.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs

from cortex.domain.errors import InvalidValueError
from cortex.durable.codec import encode


@attrs.frozen
class _Parameters:
    positional: tuple[str, ...]
    rest: str | None
    """The name of `*args`."""


def given_to(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, skipped: int = 0
) -> dict[str, Any]:
    """Return the values that a call gives, by name; the first `skipped` parameters get none.

    Values without a parameter are `argument 1`, `argument 2`, … . Raises nothing: a call that does
    not fit the function fails when it is made.
    """
    plain = function
    if type(function) is MethodType:
        plain, skipped = function.__func__, skipped + 1
    # A decorator that keeps the signature, such as `functools.wraps`, leaves it in the attributes.
    if type(plain) is FunctionType and not plain.__dict__:
        if not args:
            return kwargs
        code = plain.__code__
        if len(args) + skipped <= code.co_argcount:
            names = code.co_varnames[skipped:] if skipped else code.co_varnames
            given = dict(zip(names, args, strict=False))
            if not kwargs:
                return given
            if given.keys().isdisjoint(kwargs):
                return given | kwargs
    if type(function) is MethodType:
        skipped -= 1  # its signature is without the object
    return _bound(function, args, kwargs, skipped)


def _bound(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], skipped: int
) -> dict[str, Any]:
    held: set[int] = set()
    while isinstance(function, partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        held |= {id(value) for value in (*function.args, *function.keywords.values())}
        function = function.func
    parameters = _parameters_of(function)
    names = parameters.positional[skipped:]
    given: dict[str, Any] = dict(zip(names, args, strict=False))
    rest = args[len(names) :]
    if rest and parameters.rest is not None:
        given[parameters.rest] = [each for each in rest if not _is_apart(each, held)]
    elif rest:
        given |= {f"argument {n}": each for n, each in enumerate(rest, len(names) + 1)}
    for name, value in kwargs.items():
        # `def f(name, /, **others)` may be given two values of one name.
        given[f"**{name}" if name in given else name] = value
    return {name: value for name, value in given.items() if not _is_apart(value, held)}


def _is_apart(value: Any, held: set[int]) -> bool:
    """Return whether a value is held by a `partial` and is no JSON."""
    if id(value) not in held:
        return False
    try:
        encode(value, what="value", limit=None)
    except InvalidValueError:
        return True
    return False


_NONE: Final = _Parameters((), None)
_known: WeakKeyDictionary[Any, _Parameters] = WeakKeyDictionary()
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters_of(function: Callable[..., Any]) -> _Parameters:
    try:
        known = _known.get(function)
    except TypeError:  # no hash, or no weak references
        return _read(function)
    if known is None:
        known = _known[function] = _read(function)
    return known


def _read(function: Callable[..., Any]) -> _Parameters:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions in C have none
        return _NONE
    rest = (each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL)
    positional = tuple(each.name for each in parameters if each.kind in _POSITIONAL)
    return _Parameters(positional, next(rest, None))
