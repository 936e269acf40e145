"""Tools: functions that a model may call, with the schema read from their signature.

    @tool(timeout=30)
    async def look_up(context: ToolContext, city: str, days: int = 3) -> Forecast:
        '''Weather forecast for a city.

        Args:
            city: Name in English.
            days: How many days ahead, 1 to 10.
        '''

A first parameter annotated `ToolContext` is filled in by Cortex and is not shown to the model.
A function without `async` runs in a thread; when it times out, the thread is left behind.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints, overload
from uuid import UUID

import attrs
import trio
from trio.lowlevel import RunVar

from cortex.agent.plain import plain
from cortex.agent.schema import (
    Schema,
    UnsupportedTypeError,
    argument_descriptions,
    object_schema,
    summary,
)
from cortex.agent.structuring import MisfitError, Problem, structure
from cortex.domain.errors import InvalidValueError, TimedOutError, UsageError

# What the Messages API accepts.
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TIMEOUT_DEFAULT_S = 120.0
TIMEOUT_MAX_S = 600.0

THREADS_MAX = 500
"""Tools that hang keep their threads; they must not keep those that the pod itself needs."""

ToolFunction = Callable[..., Any]


@attrs.frozen
class ToolContext:
    """Which call this is and where it may work.

    `workspace` is the only folder that a tool may write to; `folder` is where it reads and where
    commands start, the workspace unless told otherwise.
    """

    job_id: UUID
    attempt: int
    call_id: str
    workspace: Path
    folder: Path = attrs.field(default=attrs.Factory(lambda self: self.workspace, takes_self=True))


class ToolInputError(InvalidValueError):
    """The model's input does not fit the tool's schema; no code of the tool has run."""

    code = "tool_input"

    def __init__(self, tool: str, problems: tuple[Problem, ...]) -> None:
        told = "; ".join(f"{each.field or 'input'} {each.reason}" for each in problems)
        super().__init__(f"tool {tool!r}: {told}", hint="call it again with input that fits")
        self.tool = tool
        self.problems = problems


@attrs.frozen(eq=False)
class Tool:
    """A function and everything that a model must know to call it.

    `run` is the function as written; `arguments` the attrs class that its input is structured into.
    """

    name: str
    description: str
    input_schema: Schema
    run: ToolFunction
    timeout_s: float
    arguments: type
    takes_context: bool

    async def call(self, context: ToolContext, given: Mapping[str, object]) -> object:
        """Check `given`, run the function and return its result in the types that JSON has.

        Raises:
            ToolInputError: `given` does not fit; nothing has run.
            TimedOutError: the function took longer than `timeout_s`.
            InvalidValueError: the result has a part that JSON has no form for, such as bytes.
        """
        try:
            arguments: Any = structure(dict(given), self.arguments)
        except MisfitError as misfit:
            raise ToolInputError(self.name, misfit.problems) from misfit
        with trio.move_on_after(self.timeout_s):
            return self._plain(await self._invoke(context, arguments))
        raise TimedOutError(f"tool {self.name!r} timed out after {self.timeout_s:g} seconds")

    async def _invoke(self, context: ToolContext, arguments: Any) -> object:
        leading = (context,) if self.takes_context else ()
        names = [field.name for field in attrs.fields(self.arguments)]
        run = partial(self.run, *leading, **{name: getattr(arguments, name) for name in names})
        if inspect.iscoroutinefunction(self.run):
            return await run()
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=_thread_limiter())

    def _plain(self, result: object) -> object:
        try:
            return plain(result)
        except MisfitError as misfit:
            problem = misfit.problems[0]
            where = f"{problem.field} in the result" if problem.path else "the result"
            raise InvalidValueError(f"tool {self.name!r}: {where} {problem.reason}") from misfit


@overload
def tool(function: ToolFunction, /) -> Tool: ...
@overload
def tool(
    *, name: str | None = None, timeout: float = TIMEOUT_DEFAULT_S
) -> Callable[[ToolFunction], Tool]: ...
def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float = TIMEOUT_DEFAULT_S,
) -> Tool | Callable[[ToolFunction], Tool]:
    """Make a tool of a function; `timeout` in seconds, at most 600.

    Raises `UsageError` where the function is defined, when the model could not be told how to call
    it: no docstring, an argument without a type, a type without a JSON form.
    """
    if function is None:
        return partial(_make, name=name, timeout_s=timeout)
    return _make(function, name=name, timeout_s=timeout)


def tools_by_name(*sources: ModuleType | Tool) -> dict[str, Tool]:
    """The given tools, and all tools found in the given modules, by their names.

    Raises `UsageError` when two different tools have one name.
    """
    found: dict[str, Tool] = {}
    for source in sources:
        values = vars(source).values() if isinstance(source, ModuleType) else (source,)
        for each in values:
            if isinstance(each, Tool) and found.setdefault(each.name, each) is not each:
                places = " and ".join(_place(one.run) for one in (found[each.name], each))
                raise UsageError(
                    f"two tools are named {each.name!r}: {places}",
                    hint="rename one with @tool(name=…)",
                )
    return found


def _make(function: ToolFunction, *, name: str | None, timeout_s: float) -> Tool:
    name = function.__name__ if name is None else name
    if not NAME.fullmatch(name):
        raise UsageError(
            f"tool name {name!r} does not match {NAME.pattern}",
            hint="use letters, digits, _ and -, at most 64",
        )
    if not 0 < timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(
            f"tool {name!r}: timeout is {timeout_s:g} s",
            hint=f"more than 0 and at most {TIMEOUT_MAX_S:g} s",
        )
    docstring = inspect.getdoc(function) or ""
    description = summary(docstring)
    if not description:
        raise UsageError(
            f"tool {name!r} has no docstring ({_place(function)})",
            hint="say what it does: the model chooses by it",
        )
    arguments, takes_context = _arguments(function, name)
    return Tool(
        name=name,
        description=description,
        input_schema=_schema(arguments, argument_descriptions(docstring), name),
        run=function,
        timeout_s=timeout_s,
        arguments=arguments,
        takes_context=takes_context,
    )


def _arguments(function: ToolFunction, name: str) -> tuple[type, bool]:
    """The function's parameters as an attrs class, and whether a `ToolContext` comes before."""
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise UsageError(f"tool {name!r}: the type {error.name!r} is not known") from error
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    fields = {}
    for parameter in parameters[takes_context:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"tool {name!r}: {parameter} cannot be passed by its name")
        if parameter.name not in hints:
            raise UsageError(
                f"tool {name!r}: argument {parameter.name!r} has no type",
                hint=f"write {parameter.name}: str, or what it is",
            )
        default = attrs.NOTHING if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = attrs.field(
            type=hints[parameter.name], default=default, alias=parameter.name, kw_only=True
        )
    return attrs.make_class("Arguments", fields, frozen=True), takes_context


def _schema(arguments: type, told: Mapping[str, str], name: str) -> Schema:
    try:
        schema = object_schema(arguments)
    except UnsupportedTypeError as error:
        raise UsageError(f"tool {name!r}: {error}") from error
    properties = schema["properties"]
    for argument, description in told.items():
        if argument not in properties:
            raise UsageError(
                f"tool {name!r}: docstring describes the unknown argument {argument!r}"
            )
        properties[argument]["description"] = description
    return schema


def _place(function: ToolFunction) -> str:
    return f"{function.__module__}.{function.__qualname__}"


_limiter: RunVar[trio.CapacityLimiter] = RunVar("tool threads")


def _thread_limiter() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS_MAX)
        _limiter.set(limiter)
        return limiter
