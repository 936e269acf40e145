"""The one converter between JSON and typed values; refuses values that do not fit.

It serves job arguments, requests to the HTTP API, agent specs and the input and results of tools.
cattrs on its own turns "3" into 3 and a text into a list of letters, and ignores unknown keys. Here
a value that does not fit is an error with its path, the expected form and the actual value.
"""

import contextlib
import dataclasses
import difflib
import math
import types
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

import attrs
import cattrs
import orjson
from cattrs import Converter
from cattrs.cols import (
    homogenous_tuple_structure_factory,
    is_any_set,
    is_frozenset,
    is_mapping,
    list_structure_factory,
)
from cattrs.errors import (
    AttributeValidationNote,
    CattrsError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory, typeddicts
from cattrs.preconf.orjson import make_converter

from cortex.domain.errors import InvalidValueError
from cortex.domain.file import File
from cortex.domain.redaction import storable
from cortex.durable import pydantic_models
from cortex.durable.class_fields import field_names, has_fields

Value = TypeVar("Value")
Hook = Callable[[Any, Any], Any]

# Enough to recognise a value in an error; a whole file in one line is no help.
SHOWN_CHARS_MAX = 80
LISTED_MAX: Final = 3
"""The most problems in one line for people."""
_DUMP_SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


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

    expected: str | None = None
    """What is accepted, without the value."""

    def __init__(self, reason: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.problems = (Problem(path, reason),)


class ModelMisfitError(ValueError):
    """A Pydantic model refused a value, for these reasons."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        places = (f"{each.field}: {each.reason}".removeprefix(": ") for each in problems)
        super().__init__("; ".join(islice(places, LISTED_MAX)))
        self.problems = tuple(Problem(each.path, f"is refused: {each.reason}") for each in problems)


class WrongTypeError(UnfitError):
    """A value of another JSON type than the declared one."""

    def __init__(self, expected: str, value: object, target: Any) -> None:
        super().__init__(f"must be {expected}, got {show(value)}")
        self.types = f"expected {getattr(target, '__name__', target)}, got {type(value).__name__}"


def structure(
    value: object, target: type[Value], *, what: str | None = None, using: Converter | None = None
) -> Value:
    """Return `value` as a `target`; raises `MisfitError` with every problem found.

    `what`: the name of the whole value, before each path.
    """
    try:
        return (using or converter).structure(value, target)
    except Exception as error:
        path = () if what is None else (what,)
        raise MisfitError(tuple(_problems(error, path))) from error


def structure_discreetly(
    value: object, target: type[Value], *, what: str, using: Converter | None = None
) -> Value:
    """Return `value` as a `target`; raises `InvalidValueError` with types and paths below `what`.

    For payloads and requests: these errors are recorded and logged, so they show no value unless a
    class's own validator does.
    """
    try:
        return (using or converter).structure(value, target)
    except Exception as error:
        lines = cattrs.transform_error(error, path=what, format_exception=_worded)
        raise InvalidValueError("; ".join(lines[:LISTED_MAX])) from error


def structure_openly(value: object, target: type[Value], *, what: str) -> Value:
    """Return `value` as a `target`; raises `InvalidValueError` with values and paths below `what`.

    For the person who gave the value.
    """
    try:
        return structure(value, target)
    except MisfitError as misfit:
        problems = (f"{_below(what, each.field)} {each.reason}" for each in misfit.problems)
        raise InvalidValueError("; ".join(islice(problems, LISTED_MAX))) from misfit


def _below(what: str, field: str) -> str:
    return f"{what}{field}" if field.startswith("[") or not field else f"{what}.{field}"


def _worded(error: BaseException, declared: type | None) -> str:
    if isinstance(error, InvalidValueError):
        return error.message
    if isinstance(error, WrongTypeError) and declared is None:
        return f"invalid type ({error.types})"
    if isinstance(error, ModelMisfitError):
        return f"invalid value ({error})"
    if isinstance(error, UnfitError) and error.expected is not None:
        return f"invalid value (expected {error.expected})"
    if isinstance(error, (CattrsError, ValueError, TypeError, KeyError, AttributeError)):
        return cattrs.v.format_exception(error, declared)
    return f"refused by its class ({type(error).__name__})"


def show(value: object) -> str:
    """Return `value` as short JSON for an error message."""
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


def refuse(expected: str, value: object) -> NoReturn:
    """Raise `UnfitError`, for a hook of a converter."""
    error = UnfitError(f"must be {expected}, got {show(value)}")
    error.expected = expected
    raise error


def _to_bool(value: object) -> bool:
    return value if isinstance(value, bool) else _refuse_type("true or false", value, bool)


def _to_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse_type("a whole number", value, int)
    return value


def _to_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse_type("a number", value, float)
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond what a float can hold
        number = math.inf
    return number if math.isfinite(number) else refuse("a finite number", value)


def _to_str(value: object) -> str:
    if not isinstance(value, str):
        _refuse_type("text", value, str)
    if storable(value) != value:
        refuse("text that UTF-8 and Postgres can hold, without NUL and lone surrogates", value)
    return value


_SCALARS: dict[type, Callable[[Any], Any]] = {
    bool: _to_bool,
    int: _to_int,
    float: _to_float,
    str: _to_str,
}


def _structure_scalar(value: object, target: Any, *, kind: type) -> object:
    """Structure a `kind`, or a member of an Enum or a value of a class derived from it."""
    if _is_choice(target):
        return _structure_choice(value, target)
    scalar = _SCALARS[kind](value)
    return scalar if target is kind else target(scalar)


def _structure_none(value: object, _: object) -> None:
    if value is not None:
        refuse("null", value)


def _structure_written(value: object, _: object, *, kind: type) -> object:
    """Structure a path, an id or an instant, which JSON writes as text."""
    expected, parse = WRITTEN[kind]
    try:
        return parse(_to_str(value))
    except ValueError:
        refuse(expected, value)


WRITTEN: dict[Any, tuple[str, Callable[[str], object]]] = {
    Path: ("a path", Path),
    UUID: ("a UUID", UUID),
    date: ("a date such as 2026-01-31", date.fromisoformat),
    datetime: ("a time such as 2026-01-31T12:00:00+00:00", datetime.fromisoformat),
}
"""Types that JSON writes as text: their description for people, and the way back."""


def _structure_decimal(value: object, _: object) -> Decimal:
    """Structure a decimal number, which is written as text to keep its digits."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        _refuse_type("a number or its digits as text", value, Decimal)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        refuse("a number or its digits as text", value)
    return number if number.is_finite() else refuse("a finite number", value)


def _structure_file(value: object, _: object) -> File:
    """Structure a file of a tool's result, as it was returned or as the record refers to it."""
    if isinstance(value, File):
        return value
    try:
        return File.of_block(value)
    except InvalidValueError:
        _refuse_type("a file", value, File)


def _structure_model(value: object, target: Any) -> object:
    """Structure a Pydantic model, which checks itself."""
    try:
        return pydantic_models.from_plain(value, target)
    except ValueError as error:
        problems = pydantic_models.problems_of(error)
        if problems is None:
            raise
        raise ModelMisfitError(tuple(Problem(*each) for each in problems)) from error


def _structure_choice(value: object, target: Any) -> object:
    """Structure a `Literal`'s or an `Enum`'s value; the type counts, so that true is not 1."""
    is_enum = isinstance(target, type)
    choices = _choices(target)
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return target(value) if is_enum else choice
    if is_enum and type(value) in map(type, choices):
        with contextlib.suppress(ValueError):
            return target(value)  # by its `_missing_`
    refuse(f"one of {', '.join(map(show, choices))}", value)


def _choices(target: Any) -> list[Any]:
    is_enum = isinstance(target, type)
    return [each.value for each in target] if is_enum else list(get_args(target))


def _make_union_hook(_: Any, inner: Converter) -> Hook:
    def hook(value: object, target: Any) -> object:
        """Return the first member that fits; if only one has the value's kind, raise its problems.

        `int | str` equals `str | int`, so both share one hook: only `target` has their order.
        """
        members = get_args(target)
        if value is None and types.NoneType in members:
            return None
        real = [each for each in members if each is not types.NoneType]
        if type(value) in real and type(value) in (int, float):
            # JSON writes a Decimal as text, and a whole float as one.
            real = [each for each in real if each not in (float, Decimal) or each is type(value)]
        if len(real) == 1:
            return inner.structure(value, real[0])
        close: list[Exception] = []
        for member in real:
            try:
                return inner.structure(value, member)
            except (ClassValidationError, IterableValidationError, ModelMisfitError) as error:
                close.append(error)
            except Exception:  # noqa: BLE001, S112 -- classes refuse by any error
                continue
        if len(close) == 1:
            raise close[0]
        names = ", ".join(map(_name_of, real))
        refuse(f"one of {names}", value)

    return hook


def _name_of(member: Any) -> str:
    if get_origin(member) is Literal:
        return ", ".join(map(show, get_args(member)))
    return getattr(member, "__name__", str(member))


def _refuse_type(expected: str, value: object, target: Any) -> NoReturn:
    raise WrongTypeError(expected, value, target)


def _only(kind: type, expected: str, factory: Callable[[Any, Converter], Hook]) -> Any:
    """Return a factory whose hook refuses other kinds: cattrs iterates over anything."""

    def make(target: Any, converter: Converter) -> Hook:
        inner = factory(target, converter)

        def hook(value: object, to: Any) -> object:
            if not isinstance(value, kind):
                _refuse_type(expected, value, to)
            return inner(value, to)

        return hook

    return make


def _make_set_hook(target: Any, converter: Converter) -> Hook:
    items: Any = list[get_args(target) or (Any,)]  # type: ignore[misc]
    inner = list_structure_factory(items, converter)
    made = frozenset if is_frozenset(target) else set
    return lambda value, _: made(inner(value, items))


def _make_class_hook(target: Any, converter: Converter) -> Hook:
    """Structure a class's fields; JSON may also contain those that the class computes itself."""
    is_exact = converter.forbid_extra_keys
    inner: Hook = make_dict_structure_fn(target, converter, _cattrs_forbid_extra_keys=is_exact)
    derived = {field.name for field in attrs.fields(target) if not field.init}
    if not derived:
        return inner
    return lambda value, to: inner({k: v for k, v in value.items() if k not in derived}, to)


def _make_dataclass_hook(target: Any, converter: Converter) -> Hook:
    is_exact = converter.forbid_extra_keys
    return make_dict_structure_fn(target, converter, _cattrs_forbid_extra_keys=is_exact)


def _make_typed_dict_hook(target: Any, converter: Converter) -> Hook:
    is_exact = converter.forbid_extra_keys
    return typeddicts.make_dict_structure_fn(target, converter, _cattrs_forbid_extra_keys=is_exact)


def _make_mapping_hook(target: Any, converter: Converter) -> Hook:
    """Structure a mapping. JSON writes keys that are no text as text."""
    inner = mapping_structure_factory(target, converter)
    kind = next(iter(get_args(target)), None)
    if kind is bool or _is_choice(kind):
        keys = (True, False) if kind is bool else _choices(kind)
        written = {key_text(each): each for each in keys}
        return lambda value, to: inner({written.get(k, k): v for k, v in value.items()}, to)
    if kind not in (int, float):
        return inner

    def number(key: object) -> object:
        with contextlib.suppress(TypeError, ValueError):
            found = kind(key)
            if orjson.dumps(found).decode() == key:
                return found
        return key

    return lambda value, to: inner({number(key): item for key, item in value.items()}, to)


def key_text(key: Any) -> str:
    """Return the text that stands for a key in JSON."""
    if type(key) is str:
        return key
    if isinstance(key, Enum):
        return key_text(key.value)
    if key is None or isinstance(key, bool):
        return orjson.dumps(key).decode()
    return str(key)


def _is_dataclass(target: Any) -> bool:
    return isinstance(target, type) and dataclasses.is_dataclass(target)


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
            names = field_names(error.cl)
            for extra in sorted(error.extra_fields, key=str):
                reason = f"is unknown; {suggestion(str(extra), names)}"
                yield Problem((*path, str(extra)), reason)
        case KeyError():
            yield Problem(path, "is missing")
        case UnfitError() | ModelMisfitError():
            for each in error.problems:
                yield Problem((*path, *each.path), each.reason)
        case ValueError() | TypeError() if error.args:  # from a class's own validators
            yield Problem(path, f"is refused: {error.args[0]}")
        case _:
            raise error


def _is_choice(target: Any) -> bool:
    is_enum = isinstance(target, type) and issubclass(target, Enum)
    return get_origin(target) is Literal or is_enum


def _is_union(target: Any) -> bool:
    return get_origin(target) in (Union, types.UnionType)


def _is_plain_tuple(target: Any) -> bool:
    """Return whether it is a tuple of any length, whose items are of one type."""
    return get_origin(target) is tuple and get_args(target)[1:] == (...,)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda target: target in kinds or get_origin(target) in kinds


def _in_order(items: Iterable[Any]) -> list[Any]:
    """Give a set the same order in every process: hashes of text differ between processes."""
    return sorted(items, key=lambda item: orjson.dumps(item, option=_DUMP_SORTED))


_LISTS: Final = (list, Sequence, Iterable, Collection, MutableSequence)


def _make_converter(*, is_exact: bool) -> Converter:
    made = make_converter(
        forbid_extra_keys=is_exact, unstruct_collection_overrides={AbstractSet: _in_order}
    )
    # It would write bytes as base85 text, which comes back as text.
    made.register_unstructure_hook(bytes, lambda value: value)
    made.register_unstructure_hook(Decimal, str)
    key_handler: Any = key_text  # called with the key alone, unlike its type in cattrs
    made.register_unstructure_hook_factory(
        is_mapping, lambda target: made.gen_unstructure_mapping(target, key_handler=key_handler)
    )
    made.register_unstructure_hook_func(pydantic_models.is_model, pydantic_models.to_plain)
    for kind in _SCALARS:
        made.register_structure_hook(kind, partial(_structure_scalar, kind=kind))
    made.register_structure_hook_func(lambda t: t is types.NoneType, _structure_none)
    made.register_structure_hook_func(
        lambda t: t is object or isinstance(t, TypeVar), lambda value, _: value
    )
    for kind in WRITTEN:
        made.register_structure_hook(kind, partial(_structure_written, kind=kind))
    made.register_structure_hook(Decimal, _structure_decimal)
    made.register_structure_hook(File, _structure_file)
    made.register_structure_hook_func(_is_choice, _structure_choice)
    made.register_structure_hook_factory(_is_union, _make_union_hook)
    collections: tuple[tuple[Callable[[Any], bool], type, str, Any], ...] = (
        (
            _is(list, Sequence, Iterable, Collection, MutableSequence),
            list,
            "a list",
            list_structure_factory,
        ),
        (_is_plain_tuple, list, "a list", homogenous_tuple_structure_factory),
        (is_any_set, list, "a list", _make_set_hook),
        (_is(dict, Mapping, MutableMapping), dict, "a mapping", _make_mapping_hook),
        (is_typeddict, dict, "a mapping", _make_typed_dict_hook),
        (attrs.has, dict, "a mapping", _make_class_hook),
        (_is_dataclass, dict, "a mapping", _make_dataclass_hook),
    )
    for predicate, kind, expected, factory in collections:
        made.register_structure_hook_factory(predicate, _only(kind, expected, factory))
    made.register_structure_hook_func(pydantic_models.is_model, _structure_model)
    return made


converter: Final = _make_converter(is_exact=True)
"""Structures and unstructures the inputs and results of jobs, steps, requests and tools."""


def _make_lenient_converter() -> Converter:
    made = _make_converter(is_exact=False)
    whole = partial(_structure_scalar, kind=int)
    made.register_structure_hook(
        int, lambda value, to: value if value is True or value is False else whole(value, to)
    )
    return made


lenient: Final = _make_lenient_converter()
"""Structures what code returned under a type that it declares: as type checkers see it, also a
value of a derived class, with more fields, and a truth value for a whole number."""


def unstructurable(shape: Any) -> Any | None:
    """Return the part of a declared shape that JSON cannot be converted to, or None."""
    visited: list[Any] = []
    left = [shape]
    while left:
        part = left.pop()
        if part in visited or part in (None, types.NoneType, Any, ...):
            continue
        visited.append(part)
        if part in (bytes, bytearray, memoryview):
            return part
        inner: list[Any] = []
        try:
            inner = _parts_of(part)
            converter.get_structure_hook(part)
        except Exception:  # noqa: BLE001 -- building a hook raises whatever the shape provokes
            bad_parts = (unstructurable(each) for each in inner if each not in visited)
            return next((bad for bad in bad_parts if bad is not None), part)
        left += inner  # the hook of a union looks up those of its members when it is called
    return None


def _parts_of(shape: Any) -> list[Any]:
    """Return the shapes that a shape consists of."""
    if get_origin(shape) is Literal:
        return []
    if pydantic_models.is_model(shape):
        return []  # it checks its own parts, and may convert those that nothing else can
    if get_origin(shape) is None and has_fields(shape):
        hints = get_type_hints(shape)  # also of class variables, which are no fields
        return [hints[name] for name in field_names(shape) if name in hints]
    return [each for each in get_args(shape) if not isinstance(each, list)]
