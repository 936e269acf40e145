"""Results in the types that functions declare: the same on the first run and on every replay.

A result goes through JSON in both cases. What the function's return annotation says is made of it
again: an attrs class, dataclass, Pydantic model, TypedDict, enum, date or number of its own kind.
Without an annotation, or with `Any`, the result stays plain JSON.
"""

import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import (
    Any,
    Final,
    LiteralString,
    Never,
    NoReturn,
    Protocol,
    Self,
    TypeGuard,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

import attrs

from cortex.domain.errors import UsageError
from cortex.durable.structuring import lenient, structure_discreetly, unstructurable

Returned_co = TypeVar("Returned_co", covariant=True)

_JSON_KINDS: Final[tuple[tuple[Any, type], ...]] = (
    (str, str),
    (int, int),
    (float, float),
    (dict, dict),
    (list, list),
    (dict[str, Any], dict),
    (list[Any], list),
)


_UNCHECKED: Final = (Any, object, None, types.NoneType, Never, NoReturn, Self, LiteralString, bool)


class CallableTool(Protocol[Returned_co]):
    """A tool, as far as its name and its result matter."""

    @property
    def name(self) -> str: ...

    @property
    def run(self) -> Callable[..., Returned_co]: ...


@attrs.frozen
class ResultType:
    """A declared type of results."""

    hint: Any
    kind: type | None
    """The type of values from JSON that need no conversion."""

    def restore(self, value: Any, what: str) -> Any:
        """Convert a value from JSON. Raises `InvalidValueError` that names `what`."""
        if type(value) is self.kind:
            return value
        return structure_discreetly(value, self.hint, what=what, using=lenient)

    @property
    def name(self) -> str:
        return inspect.formatannotation(self.hint)


def result_type(function: Callable[..., Any]) -> ResultType | None:
    """Return the type that a function declares for its results; None for plain JSON.

    Raises `UsageError` for a type that cannot be made from JSON, or whose name is unknown.
    """
    while isinstance(function, partial):
        function = function.func
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not hasattr(plain, "__name__"):  # an object with `__call__`
        plain = type(plain).__call__
    try:
        return _known[plain]
    except KeyError:
        found = _known[plain] = _read(plain)
        return found
    except TypeError:  # no hash, or no weak references
        return _read(plain)


_known: WeakKeyDictionary[Any, ResultType | None] = WeakKeyDictionary()


def result_type_of(hint: Any, what: str) -> ResultType | None:
    """Return the type for a return annotation. Raises `UsageError` that names `what`."""
    while get_origin(hint) in (Awaitable, Coroutine):
        hint = get_args(hint)[-1]
    if isinstance(hint, TypeVar) or hint in _UNCHECKED or get_origin(hint) is TypeGuard:
        return None
    kind = next((kind for known, kind in _JSON_KINDS if hint == known), None)
    if kind is None and (bad := unstructurable(hint)) is not None:
        raise UsageError(
            f"{what} cannot be made from JSON: {inspect.formatannotation(bad)}",
            hint="return plain types, dates, enums, attrs classes, dataclasses or Pydantic models "
            "of them, or annotate Any",
        )
    return ResultType(hint, kind)


def _read(function: Any) -> ResultType | None:
    annotations = _annotations_of(function)
    if isinstance(function, type) or "return" not in annotations:
        return None
    name = getattr(function, "__qualname__", repr(function))
    stand_in = types.SimpleNamespace(__annotations__={"return": annotations["return"]})
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        hint = get_type_hints(stand_in, globalns=names)["return"]
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise UsageError(
            f"the return type of {name} is unknown when it runs: {error}",
            hint="define it at the top level of its module, outside `if TYPE_CHECKING`",
        ) from error
    return result_type_of(hint, f"the result of {name}")


def _annotations_of(function: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):  # where reading them evaluates all of them
        import annotationlib  # noqa: PLC0415 -- new in 3.14

        found = annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    else:
        found = getattr(function, "__annotations__", None)
    return found if isinstance(found, dict) else {}
