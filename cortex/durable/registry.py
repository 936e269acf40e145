"""Job types: what `@job` makes of a handler, and the registry in which a pod finds it."""

import difflib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    get_type_hints,
    overload,
)

import attrs

from cortex.domain.argument_check import KeyProblems
from cortex.domain.backoff import Backoff
from cortex.domain.errors import InvalidValueError, RejectedError, UsageError
from cortex.domain.job_limits import JobLimit, limits_of
from cortex.domain.policy import JobPolicy, policy_for
from cortex.domain.queueing.submit_rules import (
    Debounce,
    Singleton,
    SubmitRule,
    Throttle,
    submit_rule,
)
from cortex.durable.argument_schema import arguments_schema
from cortex.durable.codec import decode
from cortex.durable.resources import Resource, Resources, is_requested, place_of
from cortex.durable.results import ResultType, result_type
from cortex.durable.structuring import structure_discreetly, structure_openly, unstructurable

if TYPE_CHECKING:
    from cortex.domain.schedules.schedule import Schedule

Handler = Callable[..., Awaitable[Any]]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ArgumentsError(InvalidValueError):
    """The handler does not take these arguments, which other code may take."""


TYPE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
"""As in the schema."""

SCHEDULED_AT: Final = "scheduled_at"
"""An argument of this name gets the instant of a scheduled job."""

_PLAIN: Final = frozenset({str, int, bool})
_BY_NAME = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@attrs.frozen(kw_only=True)
class Retry:
    """How often a job type may be tried: `max` application retries, `worker_attempts` of each.

    None means the value of the policy table.
    """

    max: int | None = None
    worker_attempts: int | None = None
    backoff: Backoff | None = None
    """Pause before each application retry."""


@attrs.frozen
class JobType(Generic[Arguments, Result]):
    """A registered handler. Call it like the function that it wraps, in tests for example."""

    name: str
    handler: Handler
    policy: JobPolicy
    parameters: dict[str, Any] = attrs.field(repr=False)
    """Name to type of each argument after the context, without resources."""
    required: frozenset[str] = attrs.field(repr=False)
    final: tuple[type[Exception], ...] = ()
    """Exceptions that are never retried, with their subclasses."""
    is_isolated: bool = False
    """Its jobs run in processes of their own."""
    schedule: "Schedule | None" = None
    check: Callable[..., object] | None = attrs.field(default=None, repr=False)
    """Takes the arguments of a job before it is submitted."""
    result: ResultType | None = attrs.field(default=None, repr=False)
    """The declared type of the result; None for plain JSON."""
    requested: tuple[type, ...] = ()
    """The types of the resources that the handler takes."""
    mcp: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The MCP servers whose tools its jobs may call, as they are declared."""
    limits: tuple[JobLimit, ...] = ()
    """How many of its jobs run at once, or begin in a span of time."""
    rule: SubmitRule | None = None
    """What its submits obey: singleton, debounce or throttle."""

    async def __call__(self, ctx: Any, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the handler itself, with a context that the caller has made."""
        answer: Result = await self.handler(ctx, *args, **kwargs)
        return answer

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return arguments_schema(self.handler, self.parameters)

    def arguments(self, payload: str) -> dict[str, Any]:
        """Convert a payload to the types of the handler's arguments.

        Raises `ArgumentsError` with the names of all arguments that are missing, unknown or of
        another type, without their values: the error is recorded. Raises `InvalidValueError` for a
        payload that no code can read.
        """
        return self._converted(payload, structure_discreetly)

    def _converted(self, payload: str, convert: Callable[..., Any]) -> dict[str, Any]:
        try:
            given = decode(payload)
        except ValueError as error:
            # Postgres holds deeper JSON and larger numbers than Python parses.
            raise InvalidValueError(f"payload of {self.name!r} cannot be read: {error}") from error
        if not isinstance(given, dict):
            raise InvalidValueError(f"payload of {self.name!r} is not a JSON object")
        if not self.required <= given.keys() <= self.parameters.keys():
            raise self._unfit(given, convert)
        try:
            return {
                key: value
                if _is_already(self.parameters[key], value)
                else convert(value, self.parameters[key], what=f"payload.{key}")
                for key, value in given.items()
            }
        except InvalidValueError as error:
            raise self._unfit(given, convert) from error

    def names_unlike(self, given: Iterable[str]) -> KeyProblems:
        """Return which names of arguments are missing or unknown."""
        names = set(given)
        return KeyProblems.of(
            missing=sorted(self.required - names),
            unknown=sorted(names - self.parameters.keys()),
            known=self.parameters,
        )

    def _unfit(self, given: dict[str, Any], convert: Callable[..., Any]) -> ArgumentsError:
        """Return the error that names all misfits: missing, unknown, of another type."""
        keys = self.names_unlike(given)
        problems = list(keys.problems)
        for key, value in given.items():
            if key in self.parameters and not _is_already(self.parameters[key], value):
                try:
                    convert(value, self.parameters[key], what=f"payload.{key}")
                except InvalidValueError as error:
                    problems.append(error.message)
        if not keys.problems:
            return ArgumentsError("; ".join(problems))
        return ArgumentsError(f"payload of {self.name!r} {'; '.join(problems)}", hint=keys.hint)

    def check_payload(self, payload: str, *, is_fit_only: bool = False) -> None:
        """Raise `InvalidValueError` for a payload with which a job would certainly fail.

        It names the value, for the person who gave it. `is_fit_only`: only for a payload that the
        handler's arguments do not take.
        """
        arguments = self._converted(payload, structure_openly)
        if self.check is not None and not is_fit_only:
            try:
                self.check(**arguments)
            except (RejectedError, UsageError) as error:
                raise InvalidValueError(
                    f"payload of {self.name!r}: {error.message.removeprefix(f'{self.name}: ')}",
                    hint=error.hint,
                ) from error


def _is_already(hint: Any, value: Any) -> bool:
    """Return whether a value from JSON needs no conversion; False if in doubt."""
    return hint is Any or (hint is type(value) and hint in _PLAIN)


@overload
def job(
    handler: Callable[Concatenate[Any, Arguments], Awaitable[Result]], /
) -> JobType[Arguments, Result]: ...
@overload
def job(
    name: str | None = None,
    *,
    retry: Retry | None = None,
    timeout: int | None = None,
    final: tuple[type[Exception], ...] = (),
    isolated: bool = False,
    schedule: str | None = None,
    tz: str | None = None,
    backfill: str | int | None = None,
    overlap: str | None = None,
    jitter: str | int | None = None,
    check: Callable[..., object] | None = None,
    mcp: Mapping[str, Mapping[str, Any]] | None = None,
    limits: Iterable[JobLimit] = (),
    singleton: Singleton | str | None = None,
    debounce: Debounce | str | float | None = None,
    throttle: Throttle | str | float | None = None,
) -> Callable[
    [Callable[Concatenate[Any, Arguments], Awaitable[Result]]],
    JobType[Arguments, Result],
]: ...
def job(
    name: str | Handler | None = None,
    *,
    retry: Retry | None = None,
    timeout: int | None = None,
    final: tuple[type[Exception], ...] = (),
    isolated: bool = False,
    schedule: str | None = None,
    tz: str | None = None,
    backfill: str | int | None = None,
    overlap: str | None = None,
    jitter: str | int | None = None,
    check: Callable[..., object] | None = None,
    mcp: Mapping[str, Mapping[str, Any]] | None = None,
    limits: Iterable[JobLimit] = (),
    singleton: Singleton | str | None = None,
    debounce: Debounce | str | float | None = None,
    throttle: Throttle | str | float | None = None,
) -> Any:
    """Make an async function `(ctx, **arguments)` a job type; `timeout` in seconds.

    Its name is that of the function by default. The arguments and the result are JSON, or attrs
    classes, dataclasses, TypedDicts or Pydantic models.

    `final`: exceptions, with their subclasses, that fail the job at once, without a retry; all
    others are classified by the table of failures. Each job of an `isolated` type runs in a process
    of its own: it may crash without its pod.

    `schedule`: a cron expression in the zone `tz`; at each of its instants a job is submitted, and
    gets the instant as `scheduled_at`, if it takes that. See docs/guides/schedules.md for the rest.

    `check` is called with the arguments before a job is submitted by a command or over HTTP, and
    raises `RejectedError` or `UsageError` for those with which it would certainly fail.

    `mcp`: servers by name whose tools `ctx.tool` calls; see docs/guides/mcp.md. `limits`: how many
    of its jobs run at once, or begin in a span of time, for each key; see docs/guides/limits.md.

    `singleton`, `debounce`, `throttle`: what happens to submits of one key while a job of theirs
    waits or runs, comes soon after another, or within a period; one of them. See
    docs/guides/which-first.md.

    Raises `UsageError` for limits out of bounds, a handler that is not an async function, or a
    `final` that is no tuple of exceptions.
    """
    if name is not None and not isinstance(name, str):
        return job()(name)
    given = {key: value for key, value in locals().items() if key != "name"}

    def decorate(handler: Handler) -> JobType[..., Any]:
        chosen = getattr(handler, "__name__", "") if name is None else name
        return _job_type(chosen, handler, **given)

    return decorate


def _job_type(
    name: str,
    handler: Handler,
    *,
    retry: Retry | None,
    timeout: int | None,
    final: tuple[type[Exception], ...],
    isolated: bool,
    schedule: str | None,
    check: Callable[..., object] | None,
    mcp: Mapping[str, Mapping[str, Any]] | None,
    limits: Iterable[JobLimit],
    singleton: Singleton | str | None,
    debounce: Debounce | str | float | None,
    throttle: Throttle | str | float | None,
    **terms: object,
) -> JobType[..., Any]:
    """Return the checked job type; `terms`: those of its schedule."""
    hints, required = _arguments(name, handler)
    parameters = {key: hint for key, hint in hints.items() if not is_requested(hint)}
    required &= parameters.keys()
    _refuse_unstructurable(name, parameters)
    _refuse_final(name, final)
    return JobType(
        name=name,
        handler=handler,
        policy=_policy(name, retry, timeout),
        parameters=parameters,
        required=required,
        final=final,
        is_isolated=isolated,
        schedule=_schedule(
            name,
            cron=schedule,
            lacks=sorted(required - {SCHEDULED_AT}),
            instant_as=SCHEDULED_AT if SCHEDULED_AT in parameters else None,
            terms=terms,
        ),
        check=check,
        result=result_type(handler),
        requested=tuple(hint for hint in hints.values() if is_requested(hint)),
        mcp={} if mcp is None else dict(mcp),
        limits=limits_of(name, limits, parameters=parameters),
        rule=submit_rule(
            name,
            parameters=parameters,
            singleton=singleton,
            debounce=debounce,
            throttle=throttle,
        ),
    )


def _arguments(name: str, handler: Handler) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the types of a handler's arguments by name, and the names of those it requires."""
    if not TYPE_NAME.fullmatch(name):
        raise UsageError(
            f"job type {name[:120]!r} does not match {TYPE_NAME.pattern}",
            hint="use letters, digits, '.', '_' and '-', at most 100",
        )
    if not inspect.iscoroutinefunction(handler):
        raise UsageError(f"job type {name!r}: {handler!r} is not an async function")
    signature = list(inspect.signature(handler).parameters.values())
    if not signature:
        raise UsageError(f"job type {name!r}: its handler takes no context")
    hints = get_type_hints(handler)
    arguments = signature[1:]
    if odd := next((p for p in arguments if p.kind not in _BY_NAME), None):
        raise UsageError(f"job type {name!r}: a payload cannot give its argument {str(odd)!r}")
    required = frozenset(p.name for p in arguments if p.default is p.empty)
    return {p.name: hints.get(p.name, Any) for p in arguments}, required


def _schedule(
    name: str,
    *,
    cron: str | None,
    lacks: list[str],
    instant_as: str | None,
    terms: Mapping[str, Any],
) -> "Schedule | None":
    """Return the schedule of a job type, which has its name. Raises `UsageError`."""
    given = {term: value for term, value in terms.items() if value is not None}
    if cron is None:
        if given:
            raise UsageError(f"job type {name!r}: {', '.join(given)} without a schedule")
        return None
    if lacks:
        raise UsageError(
            f"job type {name!r}: its schedule gives no value for {', '.join(lacks)}",
            hint="give them defaults, or declare the schedule in a file: cortex schedules apply",
        )
    # Time zones are only imported by those who need them.
    from cortex.domain.schedules.schedule import Schedule, ScheduleError  # noqa: PLC0415

    try:
        return Schedule.make(name=name, cron=cron, type=name, instant_as=instant_as, **given)
    except ScheduleError as error:
        raise UsageError(
            f"job type {name!r}: {error.field} {error.message}", hint=error.hint
        ) from error


def _refuse_unstructurable(name: str, parameters: Mapping[str, Any]) -> None:
    for parameter, hint in parameters.items():
        if (bad := unstructurable(hint)) is not None:
            shown = inspect.formatannotation(bad)
            raise UsageError(
                f"job type {name!r}: argument {parameter!r} cannot be made from JSON: {shown}",
                hint="use plain types, dates, enums, attrs classes, dataclasses or Pydantic models "
                "of them",
            )


def _refuse_final(name: str, final: object) -> None:
    if not isinstance(final, tuple) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in final
    ):
        raise UsageError(
            f"job type {name!r}: final is {final!r:.120}",
            hint="write a tuple of exception classes: final=(KeyError,)",
        )


def _policy(name: str, retry: Retry | None, timeout: int | None) -> JobPolicy:
    given = retry or Retry()
    overrides = {
        "worker_attempts": given.worker_attempts,
        "max_retries": given.max,
        "backoff": given.backoff,
        "timeout_s": timeout,
    }
    set_ones: dict[str, Any] = {
        field: value for field, value in overrides.items() if value is not None
    }
    policy = attrs.evolve(policy_for(name), **set_ones)
    policy.check(name)
    return policy


class Registry:
    """The job types that a pod can run, by name."""

    def __init__(self, types: Iterable[JobType[..., Any]] = ()) -> None:
        self.resources = Resources()
        self._types: dict[str, JobType[..., Any]] = {}
        for job_type in types:
            self.add(job_type)

    def add(self, job_type: JobType[..., Any]) -> None:
        """Register a job type. Raises `UsageError` if the name is taken by another one."""
        other = self._types.setdefault(job_type.name, job_type)
        if other is not job_type:
            places = f"{place_of(other.handler)} and {place_of(job_type.handler)}"
            raise UsageError(f"job type {job_type.name!r} is defined twice: {places}")

    def collect(self, *modules: ModuleType) -> None:
        """Register every job type and resource at the top level of these modules.

        Raises `UsageError` for two of one name or type, and for a job type whose handler takes what
        neither JSON nor a resource gives.
        """
        values = [value for module in modules for value in vars(module).values()]
        self.resources.declare(each for each in values if isinstance(each, Resource))
        for value in values:
            if isinstance(value, JobType):
                self.add(value)
        for each in self._types.values():
            what = f"job type {each.name!r}"
            given = each.parameters.values()
            self.resources.check(what, each.handler, requested=each.requested, given=given)

    def get(self, name: str) -> JobType[..., Any]:
        """Return a job type. Raises `UsageError` that suggests the nearest one."""
        try:
            return self._types[name]
        except KeyError:
            close = difflib.get_close_matches(name, self._types, n=1)
            own = [
                each.name
                for each in self._types.values()
                if not each.handler.__module__.startswith("cortex.")
            ]
            hint = f"yours are {', '.join(sorted(own))}" if own else "load yours with --app"
            hint = f"did you mean {close[0]!r}?" if close else hint
            raise UsageError(f"unknown job type {name!r}", hint=hint) from None

    def final(self, name: str) -> tuple[type[Exception], ...]:
        """Return the errors that a type declares final; none for a type that is not here."""
        return self._types[name].final if name in self._types else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every registered name, sorted."""
        return tuple(sorted(self._types))

    @property
    def shared_names(self) -> tuple[str, ...]:
        """Types whose jobs run in the pod's own process, sorted."""
        return tuple(name for name in self.names if not self._types[name].is_isolated)

    @property
    def isolated_names(self) -> tuple[str, ...]:
        """Types whose jobs run in processes of their own, sorted."""
        return tuple(name for name in self.names if self._types[name].is_isolated)

    def is_isolated(self, name: str) -> bool:
        """Return whether this type is known and its jobs run in processes of their own."""
        known = self._types.get(name)
        return known is not None and known.is_isolated

    @property
    def schedules(self) -> "tuple[Schedule, ...]":
        """The schedules that job types declare, by name."""
        declared = (self._types[name].schedule for name in self.names)
        return tuple(each for each in declared if each is not None)

    @property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """The arguments of each type, as JSON Schema."""
        return {name: self._types[name].schema for name in self.names}

    def find(self, name: str) -> JobType[..., Any] | None:
        """Return a job type, or None if it is not here."""
        return self._types.get(name)

    @property
    def limits(self) -> dict[str, tuple[JobLimit, ...]]:
        """The limits of each type, none of most."""
        return {name: self._types[name].limits for name in self.names}

    @property
    def policies(self) -> dict[str, JobPolicy]:
        return {name: self._types[name].policy for name in self.names}

    @property
    def rules(self) -> dict[str, SubmitRule | None]:
        """The rule of each type about its submits."""
        return {name: self._types[name].rule for name in self.names}
