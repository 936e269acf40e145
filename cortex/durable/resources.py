"""Resources: clients, pools and models that the jobs of a process share.

    @cortex.resource
    async def http() -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(timeout=10) as client:
            yield client

Handlers, steps, effects and tools get a resource by the annotation of a parameter: every parameter
of that type that the call leaves out is filled in. It is no part of a job's arguments or of a
step's input.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary, WeakSet

import attrs

from cortex.domain.errors import UsageError
from cortex.durable.class_fields import has_fields
from cortex.durable.structuring import unstructurable

Value = TypeVar("Value")
_declared: Final[WeakSet[type]] = WeakSet()


@attrs.frozen(eq=False)
class Resource(Generic[Value]):
    """A declared resource. Call it like the function, to open one of its own in a test."""

    name: str
    kind: type
    """The type by which parameters request it."""
    open: Callable[[], AbstractAsyncContextManager[Value]]
    place: str
    """File and line."""

    def __call__(self) -> AbstractAsyncContextManager[Value]:
        return self.open()


def resource(
    function: Callable[[], AsyncIterator[Value] | AbstractAsyncContextManager[Value]],
) -> Resource[Value]:
    """Make a resource of an async generator function that yields it once.

    Each pod, and each process of isolated jobs, opens it before its first job, in its own task, and
    closes it after the last one. The return annotation, such as `AsyncIterator[Client]`, says by
    which type it is requested.

    Raises `UsageError` for another function, and for one with parameters or without this type.
    """
    name = getattr(function, "__name__", repr(function))
    if not inspect.isasyncgenfunction(inspect.unwrap(function)):
        raise UsageError(
            f"resource {name!r} is not an async generator function",
            hint="write: async def, and yield the resource once",
        )
    if inspect.signature(function).parameters:
        raise UsageError(
            f"resource {name!r} takes parameters", hint="nothing gives them: remove them"
        )
    kind = _yielded(name, function)
    _declared.add(kind)
    opens: Any = function
    if inspect.isasyncgenfunction(function):  # not wrapped by `asynccontextmanager` yet
        opens = asynccontextmanager(function)
    return Resource(name=name, kind=kind, open=opens, place=place_of(function))


def _yielded(name: str, function: Callable[..., Any]) -> type:
    hint = get_type_hints(function).get("return")
    if get_origin(hint) in (AsyncIterator, AsyncGenerator) and isinstance(get_args(hint)[0], type):
        kind: type = get_args(hint)[0]
        if kind.__module__ != "builtins":
            return kind
    raise UsageError(
        f"resource {name!r} does not say the class of what it yields",
        hint="annotate the function: -> AsyncIterator[Client]",
    )


def is_requested(hint: Any) -> bool:
    """Return whether a parameter of this type requests a resource: no payload can give it.

    A class that JSON can give is requested where a resource was declared before.
    """
    if not isinstance(hint, type) or hint.__module__ == "builtins":
        return False
    if has_fields(hint):
        return hint in _declared
    return hint in _declared or unstructurable(hint) is hint


def place_of(function: Callable[..., Any]) -> str:
    """Return file and line of a function, for people."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "unknown place" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


@attrs.define(eq=False)
class Resources:
    """The resources of a process: declared ones, and their values while they are open."""

    declared: dict[type, Resource[Any]] = attrs.field(factory=dict)
    opened: dict[type, Any] = attrs.field(factory=dict)
    _requests: WeakKeyDictionary[Any, tuple[tuple[int | None, str, type], ...]] = attrs.field(
        factory=WeakKeyDictionary, init=False
    )

    def declare(self, resources: Iterable[Resource[Any]]) -> None:
        """Add resources. Raises `UsageError` for two of one type."""
        for each in resources:
            other = self.declared.setdefault(each.kind, each)
            if other is not each:
                raise UsageError(
                    f"two resources have the type {each.kind.__name__}: "
                    f"{other.name} ({other.place}) and {each.name} ({each.place})",
                    hint="keep one, or give one of them a subclass of its own",
                )

    def check(
        self,
        what: str,
        function: Callable[..., Any],
        *,
        requested: Iterable[type],
        given: Iterable[Any],
    ) -> None:
        """Raise `UsageError` for a function whose parameters cannot get their values.

        `requested`: types that only a resource gives; `given`: types that a payload or a model
        gives, which no resource declared later may take over.
        """
        for kind in requested:
            if kind not in self.declared:
                raise UsageError(
                    f"{place_of(function)}: {what} takes a {kind.__module__}.{kind.__qualname__}, "
                    "which JSON cannot give",
                    hint="declare a @cortex.resource that yields one, or take plain types, attrs "
                    "classes, dataclasses or Pydantic models",
                )
        for kind in given:
            if isinstance(kind, type) and kind in self.declared:
                late = self.declared[kind]
                raise UsageError(
                    f"{place_of(function)}: {what} takes a {kind.__name__}, whose resource "
                    f"{late.name} ({late.place}) is declared later",
                    hint="declare the resource first",
                )

    def bind(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *names: str,
        skipped: int = 0,
    ) -> Callable[..., Any]:
        """Return the function with the resources that a call with these arguments leaves out.

        `names` of keyword arguments; the first `skipped` parameters get other values. What is
        returned raises `UsageError` when it is called without a resource that it needs.
        """
        count, missing = len(args) + skipped, {}
        if self.opened:
            missing = {
                name: self.opened[kind]
                for position, name, kind in self._requested_by(function)
                if name not in names and (position is None or position >= count)
            }
        if type(function) is FunctionType:
            required = function.__code__.co_argcount - len(function.__defaults__ or ())
            if required > count + len(names) + len(missing):
                error = _undeclared(function, count, {*names, *missing})
                if error is not None:
                    return _raising(error)
        return partial(function, **missing) if missing else function

    def _requested_by(
        self, function: Callable[..., Any]
    ) -> tuple[tuple[int | None, str, type], ...]:
        try:
            known = self._requests.get(function)
        except TypeError:  # no hash, or no weak references
            return self._read(function)
        if known is None:
            known = self._requests[function] = self._read(function)
        return known

    def _read(self, function: Callable[..., Any]) -> tuple[tuple[int | None, str, type], ...]:
        try:
            parameters = list(inspect.signature(function).parameters.values())
            plain: Any = function
            given: set[str] = set()
            while isinstance(plain, partial):
                given |= plain.keywords.keys()
                plain = plain.func
            hints = get_type_hints(plain if hasattr(plain, "__name__") else type(plain).__call__)
        except (TypeError, ValueError, NameError, AttributeError):
            return ()
        found: list[tuple[int | None, str, type]] = []
        for index, each in enumerate(parameters):
            kind = hints.get(each.name)
            if each.name in given or each.kind in _REST:
                continue
            if isinstance(kind, type) and kind in self.opened:
                position = None if each.kind is inspect.Parameter.KEYWORD_ONLY else index
                found.append((position, each.name, kind))
        return tuple(found)


def _undeclared(
    function: Callable[..., Any], count: int, given: Collection[str]
) -> UsageError | None:
    """Return the error for a call that leaves out what only a resource gives."""
    try:
        hints = get_type_hints(function)
    except (TypeError, NameError, AttributeError):
        return None
    for position, (name, each) in enumerate(inspect.signature(function).parameters.items()):
        is_given = position < count or name in given or each.default is not each.empty
        kind: Any = hints.get(name)
        if not is_given and is_requested(kind):
            return UsageError(
                f"{place_of(function)}: {function.__name__} takes a "
                f"{kind.__module__}.{kind.__qualname__}, which no open @cortex.resource yields",
                hint="declare one in the application",
            )
    return None


def _raising(error: UsageError) -> Callable[..., Any]:
    """Return a function that raises. A step that is on record needs no resource."""

    async def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return refused


_REST: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
