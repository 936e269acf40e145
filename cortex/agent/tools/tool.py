"""Tools: functions that a model may call, with the schema read from their signature.

    @tool(timeout=30)
    async def look_up(context: ToolContext, city: str, days: int = 3) -> Forecast:
        '''Weather forecast for a city.

        Args:
            city: Name in English.
            days: How many days ahead, 1 to 10.
        '''

A first parameter annotated `ToolContext` is filled in by Cortex and is not shown to the model.
The result must fit the return annotation; without one, or with `Any`, it may be anything that
JSON can represent.

A function without `async` runs in a thread; when it times out, the thread is left behind. So is an
async function that ignores its cancellation for more than eight seconds. One that blocks without
awaiting holds up the whole pod: write it without `async`.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, get_type_hints, overload
from uuid import UUID

import attrs
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.quota import Quota
from cortex.agent.plain import plain, raw_text
from cortex.agent.secrets import Secrets
from cortex.agent.spec import TOOL_NAME
from cortex.agent.tools.abandon import abandonable
from cortex.agent.tools.effect_rule import Declared, EffectRule, EffectWords, declared
from cortex.agent.tools.input_schema import (
    argument_descriptions,
    check_type,
    object_schema,
    summary,
)
from cortex.agent.tools.tool_result import checked
from cortex.domain.approvals.rules import ApprovalRule, Gate, GatedCall, gate_of
from cortex.domain.effect import Invocation
from cortex.domain.errors import InvalidOutputError, TimedOutError, UsageError
from cortex.domain.model import INVALID_INPUT
from cortex.domain.timeouts import TIMEOUTS, check_timeout
from cortex.durable.json_schema import Schema, UnsupportedTypeError
from cortex.durable.resources import Resources, is_requested
from cortex.durable.stray_errors import tamed
from cortex.durable.structuring import MisfitError, Problem, show, structure
from cortex.durable.threads import in_thread, thread_for

ToolFunction = Callable[..., Any]
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
BreakerName = Callable[[Any], str | None]
"""Maps a call's arguments, as attributes, to the name of its breaker."""


@attrs.frozen
class ToolContext:
    """One call of a tool and where it may work.

    `workspace` is where a tool writes; `folder` is where it reads and where commands start, which
    may write there, too. By default `folder` is the workspace.
    """

    job_id: UUID
    attempt: int
    call_id: str
    workspace: Path
    folder: Path = attrs.field(default=attrs.Factory(lambda self: self.workspace, takes_self=True))
    secrets: Secrets = attrs.field(factory=Secrets, kw_only=True)
    """References to the secrets of the job's agent, without their values."""
    confiner: Confiner = attrs.field(factory=Confiner.chosen, kw_only=True)
    """Confines the programs that a tool starts."""
    has_network: bool = attrs.field(default=False, kw_only=True)
    """Programs may use the pod's network."""
    writes_folder: bool = attrs.field(default=True, kw_only=True)
    """Programs may write in `folder`, unless another rule forbids it."""
    quota: Quota = attrs.field(factory=Quota, kw_only=True)
    """How much the workspace may hold."""
    environment: Mapping[str, str] | None = attrs.field(default=None, kw_only=True)
    """The environment of a program that people approved; None: nobody was asked."""
    _invocation: Invocation | None = attrs.field(default=None, kw_only=True)
    traceparent: str | None = attrs.field(default=None, kw_only=True)
    """Header of W3C Trace Context for what the tool calls; None: the job is in no trace."""

    notify: Callable[[str, UUID], Awaitable[None]] | None = attrs.field(default=None, kw_only=True)
    """Submits a job `send_notification` with these arguments, JSON text, under this id."""

    @property
    def invocation(self) -> Invocation:
        """The intended call of a tool with an effect.

        Its id is the idempotency key for the other side, its attempt the fencing token.

        Raises `UsageError` in a tool that declares no effect.
        """
        if self._invocation is None:
            raise UsageError(
                f"context.invocation: call {self.call_id} has none, because its tool declares no "
                "effect: write @tool(effect=True)"
            )
        return self._invocation

    def secret(self, name: str) -> str:
        """Look up one of the agent's secrets on this pod: it may have changed since the last call.

        In records and logs a marker replaces its value. Raises `RejectedError` for a secret that
        the agent does not declare, or that this pod lacks.
        """
        return self.secrets.value(name)


class ToolInputError(InvalidOutputError):
    """The model's input does not fit the tool's schema; no code of the tool has run."""

    code = "tool_input"

    def __init__(self, tool: str, problems: tuple[Problem, ...], *, raw: str) -> None:
        text = "; ".join(f"{each.field or 'input'} {each.reason}" for each in problems)
        message = f"tool {tool!r}: {text}"
        super().__init__(message, hint="call it again with input that fits", raw=raw)
        self.tool = tool
        self.problems = problems


class CutCallError(ToolInputError):
    """The model's answer ended before the arguments of a call were complete; it must not run."""

    def __init__(self, tool: str, *, raw: str) -> None:
        InvalidOutputError.__init__(
            self,
            f"your answer was cut before the arguments of this call were complete: {tool!r} did "
            "not run",
            hint="call it again, with shorter arguments or in several calls",
            raw=raw_text(raw),
        )
        self.tool = tool
        self.problems = ()


@attrs.frozen(eq=False, kw_only=True)
class Tool(Generic[Parameters, Returned]):
    """A function and everything that a model must know to call it. Call it like the function.

    `run` is the function as written; `arguments` the attrs class that its input is structured into,
    `result` the type that its result must fit. If a required tool fails, so does the step that
    called it; another tool's failure is reported to the agent. A local tool needs nothing remote.
    """

    name: str
    description: str
    input_schema: Schema
    run: Callable[..., Returned]
    timeout_s: float
    arguments: type
    result: Any
    takes_context: bool
    requested: tuple[type, ...]
    """The types of the resources that the function takes."""
    is_required: bool
    is_local: bool
    breaker: BreakerName | None
    declared: Declared

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Call the function itself: nothing is checked, recorded or asked."""
        return self.run(*args, **kwargs)

    async def call(
        self,
        context: ToolContext,
        given: Mapping[str, object],
        *,
        timeout_s: float | None = None,
    ) -> object:
        """Check `given`, run the function and return its result in JSON's types.

        Raises `ToolInputError` if nothing has run, and the errors of `invoke`.
        """
        return await self.invoke(context, self.parse(given), timeout_s=timeout_s)

    def parse(self, given: Mapping[str, object]) -> Any:
        """Return `given` as the function's arguments.

        Raises `ToolInputError` if it does not fit.
        """
        if INVALID_INPUT in given:
            text = str(given[INVALID_INPUT])
            problem = Problem((), f"is not a JSON object: {show(text)}")
            raise ToolInputError(self.name, (problem,), raw=raw_text(text))
        try:
            return structure(dict(given), self.arguments)
        except MisfitError as misfit:
            raise ToolInputError(self.name, misfit.problems, raw=raw_text(given)) from misfit

    def breaker_name(self, arguments: Any) -> str | None:
        """Return the name of a call's circuit breaker; None if it needs nothing remote."""
        if self.is_local:
            return None
        return f"tool:{self.name}" if self.breaker is None else self.breaker(arguments)

    def effect_of(self, arguments: Any) -> EffectRule | None:
        """Return the rule for a call's outside result; None if it has none."""
        return self.declared.rule(self.name, arguments)

    def canonical(self, arguments: Any) -> dict[str, Any]:
        """Return arguments with their defaults as plain JSON for people; it fits the schema.

        `parse` gives the same arguments back.
        """
        given = attrs.asdict(arguments, filter=lambda field, _: field.init)
        return {name: plain(value) for name, value in given.items()}

    def gate(self, arguments: Any, rules: Sequence[ApprovalRule]) -> Gate | None:
        """Return the question for people before a call; None if it may run at once."""
        call = GatedCall(
            tool=self.name,
            arguments=self.canonical(arguments),
            is_effect=self.effect_of(arguments) is not None,
            mark=self.declared.mark,
        )
        return gate_of(call, rules)

    async def invoke(
        self,
        context: ToolContext,
        arguments: Any,
        *,
        timeout_s: float | None = None,
        resources: Resources | None = None,
    ) -> object:
        """Run the function; `timeout_s` replaces the tool's own limit.

        Raises:
            TimedOutError: it took longer, and has ended or was left behind at most 8 s later.
            InvalidOutputError: the result does not fit the declared type, or has no JSON form.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        async with thread_for(self.run):
            with trio.move_on_after(limit_s):
                result = await self._run(context, arguments, resources)
                return checked(self.name, result, self.result)
        raise TimedOutError(
            f"tool {self.name!r} timed out after {limit_s:g} seconds", scope="call", limit_s=limit_s
        )

    async def _run(
        self, context: ToolContext, arguments: Any, resources: Resources | None
    ) -> object:
        leading = (context,) if self.takes_context else ()
        names = [field.name for field in attrs.fields(self.arguments)]
        bound = self.run if resources is None else resources.bind(self.run, leading, *names)
        run: Any = partial(bound, *leading, **{name: getattr(arguments, name) for name in names})
        try:
            if inspect.iscoroutinefunction(self.run):
                return await abandonable(run, name=f"tool {self.name!r}")
            return await in_thread(run)
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised
            raised = tamed(error)
        try:
            raise raised  # outside, so that an error that cannot be read is not its context
        finally:
            del raised  # it refers to this frame


AnyTool = Tool[..., Any]


@overload
def tool(function: Callable[Parameters, Returned], /) -> Tool[Parameters, Returned]: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = None,
    required: bool = False,
    local: bool = False,
    breaker: BreakerName | None = None,
    **effect: Unpack[EffectWords],
) -> Callable[[Callable[Parameters, Returned]], Tool[Parameters, Returned]]: ...
def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    required: bool = False,
    local: bool = False,
    breaker: BreakerName | None = None,
    **effect: Unpack[EffectWords],
) -> Any:
    """Make a tool of a function.

    `timeout`: seconds, 120 by default and at most 600. `required`: if it fails, the step and the
    job fail, instead of a report to the agent. `local`: it needs nothing outside this machine, so
    no circuit breaker guards it. `breaker`: names the breaker by the call's arguments; without it
    all calls of the tool share one. For `effect` and related keywords see `EffectWords`.

    Raises `UsageError` at the definition if the tool cannot be described to the model: no
    docstring, an argument without a type, a type without a JSON form; or if its effect keywords
    contradict each other.
    """

    def make(function: ToolFunction) -> AnyTool:
        return _make(
            function,
            name=function.__name__ if name is None else name,
            timeout_s=timeout,
            is_required=required,
            is_local=local,
            breaker=breaker,
            declared=declared(function.__name__ if name is None else name, effect),
        )

    return make if function is None else make(function)


def tools_by_name(*sources: ModuleType | AnyTool) -> dict[str, AnyTool]:
    """Return the given tools, and all tools of the given modules, by their names.

    Raises `UsageError` when two different tools have one name.
    """
    tools: dict[str, AnyTool] = {}
    for source in sources:
        values = vars(source).values() if isinstance(source, ModuleType) else (source,)
        for each in values:
            if isinstance(each, Tool) and tools.setdefault(each.name, each) is not each:
                places = " and ".join(_place(one.run) for one in (tools[each.name], each))
                raise UsageError(
                    f"two tools are named {each.name!r}: {places}",
                    hint="rename one with @tool(name=…)",
                )
    return tools


def _make(
    function: ToolFunction, *, name: str, timeout_s: float | None, **declared: Any
) -> AnyTool:
    if not TOOL_NAME.fullmatch(name):
        raise UsageError(
            f"tool name {name!r} does not match {TOOL_NAME.pattern}",
            hint="use letters, digits, _ and -, at most 64",
        )
    if timeout_s is None:
        timeout_s = TIMEOUTS["tool_call"].default_s
    check_timeout("tool_call", timeout_s, source=f"tool {name!r}: timeout")
    docstring = inspect.getdoc(function) or ""
    description = summary(docstring)
    if not description:
        raise UsageError(
            f"tool {name!r} has no docstring ({_place(function)})",
            hint="describe what it does: the model chooses by it",
        )
    hints = _hints(function, name)
    requested = {key: hint for key, hint in hints.items() if key != "return" and is_requested(hint)}
    arguments, takes_context = _arguments(function, hints, name, requested.keys())
    return Tool(
        name=name,
        description=description,
        input_schema=_schema(arguments, argument_descriptions(docstring), name),
        run=function,
        timeout_s=timeout_s,
        arguments=arguments,
        result=_result(hints, name),
        takes_context=takes_context,
        requested=tuple(requested.values()),
        **declared,
    )


def _hints(function: ToolFunction, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError as error:
        raise UsageError(f"tool {name!r}: the type {error.name!r} is unknown") from error


def _result(hints: Mapping[str, Any], name: str) -> Any:
    declared = hints.get("return", Any)
    try:
        check_type(declared)
    except UnsupportedTypeError as error:
        raise UsageError(
            f"tool {name!r}: its result: {error}", hint="declare another type, or Any to check none"
        ) from error
    return declared


def _arguments(
    function: ToolFunction, hints: Mapping[str, Any], name: str, requested: AbstractSet[str]
) -> tuple[type, bool]:
    """Return the parameters as an attrs class, and whether a `ToolContext` comes before them.

    Without the `requested` ones, which are resources.
    """
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is ToolContext
    fields = {}
    for parameter in parameters[takes_context:]:
        if parameter.name in requested:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"tool {name!r}: {parameter} cannot be passed by its name")
        if parameter.name == INVALID_INPUT:
            raise UsageError(f"tool {name!r}: the argument name {INVALID_INPUT!r} is taken")
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


def _schema(arguments: type, descriptions: Mapping[str, str], name: str) -> Schema:
    try:
        schema = object_schema(arguments)
    except UnsupportedTypeError as error:
        raise UsageError(f"tool {name!r}: {error}") from error
    properties = schema["properties"]
    for argument, description in descriptions.items():
        if argument not in properties:
            raise UsageError(
                f"tool {name!r}: docstring describes the unknown argument {argument!r}"
            )
        properties[argument]["description"] = description
    return schema


def _place(function: ToolFunction) -> str:
    return f"{function.__module__}.{function.__qualname__}"
