"""Converts plain JSON values to typed ones, without guessing; `plain.py` is the way back.

cattrs on its own turns "3" into 3 and ignores unknown keys. These values were written by a model,
by a person or by a tool's code, so a near miss is reported, never repaired: each misfit is a
`Problem` with its path, the expected form and the actual value.
"""

import contextlib
import difflib
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin
from uuid import UUID

import attrs
import orjson
from cattrs import Converter
from cattrs.cols import homogenous_tuple_structure_factory, list_structure_factory
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory

Value = TypeVar("Value")
Hook = Callable[[Any, Any], Any]

# Enough to recognise a value in an error; a whole file in one line is no help.
SHOWN_CHARS_MAX = 80
UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@attrs.frozen
class Problem:
    """One misfit. `reason` continues after the path: "must be …", "is missing"."""

    path: tuple[str | int, ...]
    reason: str

    @property
    def field(self) -> str:
        """The path as people write it: `limits.timeout_seconds`, `tools[2]`."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text


class MisfitError(ValueError):
    """The value does not fit the type; `problems`, never empty, says where and why."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{each.field} {each.reason}".strip() for each in problems))
        self.problems = problems


class UnfitError(ValueError):
    """One value is refused. Validators put their attribute, or the path from it, in `path`."""

    def __init__(self, reason: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def structure(value: object, target: type[Value]) -> Value:
    """Return `value` as a `target`; raises `MisfitError` with every problem found."""
    try:
        return _converter.structure(value, target)
    except Exception as error:
        raise MisfitError(tuple(_problems(error, ()))) from error


def show(value: object) -> str:
    """`value` as short JSON for an error message."""
    text = repr(value)
    if value is None or isinstance(value, bool | str | list | dict):
        with contextlib.suppress(orjson.JSONEncodeError):
            text = orjson.dumps(value).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def suggestion(wrong: str, known: tuple[str, ...]) -> str:
    """Return a hint for an unknown name: the nearest known one, or all of them."""
    prefixed = [each for each in known if wrong and each.startswith(wrong)]
    near = prefixed[:1] or difflib.get_close_matches(wrong, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known)}" if known else "none is known"


def _refuse(expected: str, value: object) -> NoReturn:
    raise UnfitError(f"must be {expected}, got {show(value)}")


def _structure_bool(value: object, _: object) -> bool:
    return value if isinstance(value, bool) else _refuse("true or false", value)


def _structure_int(value: object, _: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse("a whole number", value)
    return value


def _structure_float(value: object, _: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse("a number", value)
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond what a float can hold
        number = math.inf
    return number if math.isfinite(number) else _refuse("a finite number", value)


def _structure_str(value: object, _: object) -> str:
    if not isinstance(value, str):
        _refuse("text", value)
    if UNSTORABLE.search(value):
        _refuse("text that UTF-8 and Postgres can hold, without NUL and lone surrogates", value)
    return value


def _structure_text(value: object, target: Any) -> object:
    """Structure text, or the member of an Enum of texts, for which cattrs comes here too."""
    return _structure_choice(value, target) if _is_choice(target) else _structure_str(value, target)


def _structure_none(value: object, _: object) -> None:
    if value is not None:
        _refuse("null", value)


def _structure_written(value: object, target: type) -> object:
    """Structure a path, an id or an instant, which JSON writes as text."""
    expected, parse = WRITTEN[target]
    try:
        return parse(_structure_str(value, target))
    except ValueError:
        _refuse(expected, value)


WRITTEN: dict[Any, tuple[str, Callable[[str], object]]] = {
    Path: ("a path", Path),
    UUID: ("a UUID", UUID),
    date: ("a date such as 2026-01-31", date.fromisoformat),
    datetime: ("a time such as 2026-01-31T12:00:00+00:00", datetime.fromisoformat),
}
"""Types that JSON writes as text: their description for people, and the way back."""


def _structure_choice(value: object, target: Any) -> object:
    """Structure a `Literal`'s or an `Enum`'s value; the type counts, so that true is not 1."""
    is_enum = isinstance(target, type)
    choices = [each.value for each in target] if is_enum else list(get_args(target))
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return target(value) if is_enum else choice
    _refuse(f"one of {', '.join(map(show, choices))}", value)


def _structure_union(value: object, target: Any) -> object:
    """Return the first member that fits; with one real member, its own problem is reported."""
    members = get_args(target)
    if value is None and types.NoneType in members:
        return None
    real = [each for each in members if each is not types.NoneType]
    if len(real) == 1:
        return _converter.structure(value, real[0])
    for member in real:
        try:
            return _converter.structure(value, member)
        except (UnfitError, ClassValidationError, IterableValidationError):
            continue
    _refuse(f"one of {', '.join(getattr(each, '__name__', str(each)) for each in real)}", value)


def _only(kind: type, expected: str, factory: Callable[[Any, Converter], Hook]) -> Any:
    """Return a factory whose hook refuses other kinds: cattrs iterates over anything."""

    def make(target: Any, converter: Converter) -> Hook:
        inner = factory(target, converter)

        def hook(value: object, target: Any) -> object:
            return inner(value, target) if isinstance(value, kind) else _refuse(expected, value)

        return hook

    return make


def _make_class_hook(target: Any, converter: Converter) -> Hook:
    """Structure a class's fields, without those that it computes itself."""
    inner: Hook = make_dict_structure_fn(target, converter, _cattrs_forbid_extra_keys=True)
    derived = {field.name for field in attrs.fields(target) if not field.init}
    if not derived:
        return inner
    return lambda value, to: inner({k: v for k, v in value.items() if k not in derived}, to)


def _problems(error: BaseException, path: tuple[str | int, ...]) -> Iterator[Problem]:
    """Yield every leaf of cattrs' tree of errors, with the path that leads to it."""
    match error:
        case ClassValidationError() | IterableValidationError():
            noted, others = error.group_exceptions()
            for inner, note in noted:
                step = note.name if isinstance(note, AttributeValidationNote) else note.index
                yield from _problems(inner, (*path, step))
            for other in others:
                yield from _problems(other, path)
        case ForbiddenExtraKeysError():
            names = tuple(each.name for each in attrs.fields(error.cl))
            for extra in sorted(error.extra_fields, key=str):
                reason = f"is unknown; {suggestion(str(extra), names)}"
                yield Problem((*path, str(extra)), reason)
        case KeyError():
            yield Problem(path, "is missing")
        case UnfitError():
            yield Problem((*path, *error.path), error.reason)
        case ValueError() | TypeError() if error.args:  # from a class's own validators
            yield Problem(path, f"is refused: {error.args[0]}")
        case _:
            raise error


def _is_choice(target: Any) -> bool:
    is_enum = isinstance(target, type) and issubclass(target, Enum)
    return get_origin(target) is Literal or is_enum


def _is_union(target: Any) -> bool:
    return get_origin(target) in (Union, types.UnionType)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda target: target in kinds or get_origin(target) in kinds


def _make_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook(bool, _structure_bool)
    converter.register_structure_hook(int, _structure_int)
    converter.register_structure_hook(float, _structure_float)
    converter.register_structure_hook(str, _structure_text)
    converter.register_structure_hook_func(lambda t: t is types.NoneType, _structure_none)
    converter.register_structure_hook_func(lambda t: t is object, lambda value, _: value)
    for each in WRITTEN:
        converter.register_structure_hook(each, _structure_written)
    converter.register_structure_hook_func(_is_choice, _structure_choice)
    converter.register_structure_hook_func(_is_union, _structure_union)
    collections: tuple[tuple[Callable[[Any], bool], type, str, Any], ...] = (
        (_is(list, Sequence), list, "a list", list_structure_factory),
        (_is(tuple), list, "a list", homogenous_tuple_structure_factory),
        (_is(dict, Mapping), dict, "a mapping", mapping_structure_factory),
        (attrs.has, dict, "a mapping", _make_class_hook),
    )
    for predicate, kind, expected, factory in collections:
        converter.register_structure_hook_factory(predicate, _only(kind, expected, factory))
    return converter


_converter = _make_converter()
