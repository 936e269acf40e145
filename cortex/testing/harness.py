"""The fixture `cortex`: jobs in memory, and what a test says about the world around them."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import attrs

import cortex.plain_structlog  # noqa: F401 -- before all that imports structlog
from cortex.agent.confinement.means import Confiner
from cortex.agent.mcp.of_jobs import servers_of
from cortex.agent.tools import BUILT_IN
from cortex.agent.tools.tool import AnyTool, tools_by_name
from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.canonical import parse
from cortex.domain.child import ChildTerms
from cortex.domain.clock import Chance, seeded_chance
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.job import StepKind
from cortex.domain.job_limits import check_keys
from cortex.domain.limits import PAYLOAD
from cortex.domain.option_check import checked_seconds
from cortex.domain.policy import DELAY_MAX_S
from cortex.domain.queueing.submit_rules import check_arguments
from cortex.domain.signals import check_key, check_name, payload_of_text
from cortex.durable.codec import decode, encode
from cortex.durable.job_log import LINES_MAX
from cortex.durable.registry import JobType
from cortex.durable.resources import Resource
from cortex.jobs.run_agent import run_agent
from cortex.testing.agents import Agent
from cortex.testing.background import Work, awaited, blocking
from cortex.testing.budgets import MemoryBudgets
from cortex.testing.children import MemoryFamily
from cortex.testing.clock import Clock
from cortex.testing.crash import Crash
from cortex.testing.crashes import Crashes
from cortex.testing.job_run import JobRun
from cortex.testing.logs import PlainLogs
from cortex.testing.model import Model
from cortex.testing.outcome import Effect, Line, Run
from cortex.testing.people import PERSON, People, Ruling
from cortex.testing.record import JobRecord
from cortex.testing.replaying import replay
from cortex.testing.signals import SentSignal, SignalQueue

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
SEED: Final = 7
"""Of the ids and pauses: a test sees the same ones each time."""


@attrs.define(eq=False, repr=False)
class Cortex:
    """Runs jobs in memory, without Postgres; nothing of a run is left for the next one.

    The fixture `cortex` of the pytest plugin is one. Elsewhere: `with Cortex() as cortex:`.
    """

    model: Model = attrs.field(factory=Model, init=False)
    """Answers all calls of models."""
    clock: Clock = attrs.field(factory=Clock, init=False)
    """What jobs take for the time of the database."""
    resources: dict[type, Any] = attrs.field(factory=dict, init=False)
    """Values in place of the application's own resources, by type; those are not opened then."""
    _people: People = attrs.field(factory=People, init=False)
    _signals: list[SentSignal] = attrs.field(factory=list, init=False)
    mcp: dict[str, Sequence[AnyTool]] = attrs.field(factory=dict, init=False)
    """Tools in place of MCP servers, by the servers' names."""
    _chance: Chance = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: seeded_chance(SEED, self._unix_ms), takes_self=True),
    )
    _folder: Path | None = attrs.field(default=None, init=False)
    _logs: PlainLogs = attrs.field(factory=PlainLogs, init=False)

    def __enter__(self) -> Self:
        self._logs.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        self._logs.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- people

    def approve_all(self, *, by: str = PERSON) -> None:
        """Approve every question that has no answer of its own."""
        self._people.for_all = Ruling(is_approved=True, by=by, reason=None)

    def approve(
        self, name: str, *, arguments: Mapping[str, Any] | None = None, by: str = PERSON
    ) -> None:
        """Approve the questions of a name: of a step, or of a tool.

        `arguments`: approve these instead of the ones that were asked for.
        """
        self._people.rulings[name] = Ruling(
            is_approved=True, by=by, reason=None, arguments=arguments
        )

    def deny(self, name: str, *, reason: str | None = None, by: str = PERSON) -> None:
        """Deny the questions of a name: of a step, or of a tool."""
        self._people.rulings[name] = Ruling(is_approved=False, by=by, reason=reason)

    # --- signals

    def signal(
        self, name: str, payload: Any = None, *, key: str | None = None, after_s: float = 0.0
    ) -> None:
        """Send a signal to each job that runs later, or to a key, for one that asks for it.

        `after_s`: it arrives so many seconds after the job has begun; else before.
        """
        check_name(name)
        what = f"signal {name!r}"
        if key is not None:
            check_key(key)
        arrives_s = checked_seconds(after_s, f"{what}: after_s", low_s=0, high_s=DELAY_MAX_S)
        self._signals.append(
            SentSignal(
                id=self._chance.new_id(),
                name=name,
                key=key,
                payload=payload_of_text(encode(payload, what=what, limit=None), what=what),
                after_s=arrives_s,
            )
        )

    # --- runs

    async def run(self, job: "RunnableJob[R]", /, **arguments: Any) -> Run[R]:
        """Run a job to its end; waits take no time. A failed job has ended, too: see `Run.error`.

        Raises `StuckError` for a job that waits for what never comes, and `InvalidValueError` for
        arguments that the job does not take.
        """
        __tracebackhide__ = True
        run = self._prepare(job, arguments, Crash())
        await awaited(run.work)
        return _outcome(run)

    def run_sync(self, job: "RunnableJob[R]", /, **arguments: Any) -> Run[R]:
        """Run a job in a test that is not async; see `run`."""
        __tracebackhide__ = True
        run = self._prepare(job, arguments, Crash())
        blocking(run.work)
        return _outcome(run)

    async def crash_everywhere(self, job: "RunnableJob[Any]", /, **arguments: Any) -> int:
        """Run a job once for each point at which its pod may die, and kill it there.

        The points: before and after each step is recorded, and before and after the intent, the
        call and the outcome of each effect. Another pod goes on each time. Return their number.

        Raises `PromiseBrokenError` if the job fails without a crash or has another end with one, or
        if an effect was applied twice or never. An effect that has neither `reconcile` nor
        `idempotent=True` leaves its fate to a person; here, one who knows.
        """
        __tracebackhide__ = True
        crashes = self._crashes(job, arguments)
        for work in crashes:
            await awaited(work)
        return crashes.count

    def crash_everywhere_sync(self, job: "RunnableJob[Any]", /, **arguments: Any) -> int:
        """Do the same in a test that is not async."""
        __tracebackhide__ = True
        crashes = self._crashes(job, arguments)
        for work in crashes:
            blocking(work)
        return crashes.count

    def _crashes(self, job: "RunnableJob[Any]", arguments: Mapping[str, Any]) -> Crashes:
        return Crashes(lambda crash: self._prepare(job, arguments, crash), self.clock)

    def _prepare(
        self,
        job: "RunnableJob[Any]",
        arguments: Mapping[str, Any],
        crash: Crash,
        *,
        depth: int = 0,
    ) -> JobRun:
        __tracebackhide__ = True
        agent = job if isinstance(job, Agent) else None
        job_type = job if agent is None else run_agent
        if not isinstance(job_type, JobType):
            shown = f"{getattr(job, '__name__', repr(job))!s:.80}"
            hint = "run a function that @job made a job type"
            raise UsageError(f"{shown} is not a job type", hint=hint)
        payload = encode(dict(arguments), what=f"payload of {job.name!r}", limit=PAYLOAD)
        try:
            job_type.check_payload(payload)
        except InvalidValueError as error:
            message = f"job {job.name!r} does not take these arguments: {error.message}"
            raise InvalidValueError(message) from None
        # One job alone waits for no limit or rule; but a submit would refuse it without its keys.
        check_keys(job_type.name, job_type.limits, decode(payload))
        check_arguments(job_type.name, job_type.rule, decode(payload), is_child=depth > 0)
        tools = () if agent is None else agent.tools
        modules = _modules_of(job_type.handler, *(each.run for each in tools))
        declared = _resources_of(modules)
        for kind in job_type.requested:
            if kind not in declared and kind not in self.resources:
                raise UsageError(
                    f"job {job.name!r} takes a {kind.__module__}.{kind.__qualname__}, which no "
                    "loaded module declares",
                    hint=f"import its @cortex.resource, or set cortex.resources[{kind.__name__}]",
                )
        types = {**_types_of(modules), job_type.name: job_type}
        budgets = MemoryBudgets()
        family = MemoryFamily(
            lambda terms, text: self._child(types, terms, text, depth=depth + 1),
            budgets=budgets,
            depth=depth,
        )
        return JobRun(
            job_type=job_type,
            types=tuple(types.values()),
            agent=agent,
            payload=payload,
            job_id=self._chance.new_id(),
            record=JobRecord(
                self._chance,
                crash,
                family=family,
                signals=SignalQueue(self._signals),
                began=self.clock.now,
            ),
            people=self._people,
            scripted=self.model.begin(),
            budgets=budgets,
            clock=self.clock,
            resources={kind: each for kind, each in declared.items() if kind not in self.resources},
            replaced=dict(self.resources),
            tools=Toolbox(
                {**BUILT_IN, **tools_by_name(*modules, *tools)},
                Confiner.chosen(),
                of_jobs=servers_of([job_type]),
                stand_ins={name: tools_by_name(*each) for name, each in self.mcp.items()},
            ),
            workspaces=self._workspaces(),
            rng=self._chance.rng,
            finds_out=crash.at is not None,
        )

    def _child(
        self, types: Mapping[str, JobType[..., Any]], terms: ChildTerms, payload: str, *, depth: int
    ) -> JobRun | str:
        """Prepare a child of a job; return why it cannot run, in words for people.

        `depth`: how many jobs are above it.
        """
        job = types.get(terms.type)
        if job is None:
            return (
                f"submits a job of type {terms.type!r}, which no loaded module has: import the "
                "module that defines it"
            )
        return self._prepare(job, parse(payload), Crash(), depth=depth)

    def _unix_ms(self) -> int:
        return int(self.clock.now.timestamp() * 1000)

    def _workspaces(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cortex-test-"))
        return self._folder / "workspaces"


class RunnableJob(Protocol[R_co]):
    """What `@job` makes of a handler; its result is an `R_co`."""

    @property
    def name(self) -> str: ...
    async def __call__(self, *args: Any, **kwargs: Any) -> R_co: ...


def _outcome(run: JobRun) -> Run[Any]:
    result, steps = None, run.steps
    places = {key: place for place, key in enumerate(steps)}
    effects = sorted(
        run.record.ledger.effects, key=lambda each: places.get(each.intent.key, len(places))
    )
    if run.error is None and run.result is not None:
        result = decode(run.result)
        if run.job_type.result is not None:
            result = run.job_type.result.restore(result, f"result of {run.job_type.name!r}")
    return Run(
        type=run.job_type.name,
        error=run.error,
        attempts=run.attempts,
        steps=steps,
        effects=tuple(
            Effect(
                key=each.intent.key,
                tool=each.intent.tool,
                arguments=parse(each.intent.arguments),
                status=each.status,
                calls=run.record.calls[each.id].count,
            )
            for each in effects
        ),
        logs=tuple(
            Line(
                message=each.message,
                level=each.level.word,
                fields=decode(each.fields or "{}"),
                step=each.step,
                attempt=each.lease.attempt,
            )
            for each in run.log.take(LINES_MAX)
        ),
        state=dict(run.record.published.state),
        progress=run.record.published.progress,
        chunks=tuple(
            decode(step.output) for step in run.record.steps.steps if step.kind is StepKind.EMIT
        ),
        result=result,
        replay=lambda: blocking(Work(lambda: replay(run), lambda _: None)),
    )


def _modules_of(*functions: Callable[..., Any]) -> list[ModuleType]:
    """Return the modules of an application's functions, and the loaded ones of their packages.

    A module of tests stands alone.
    """
    names = dict.fromkeys(each.__module__ for each in functions)
    packages = tuple(
        f"{name.partition('.')[0]}." for name in names if "." in name and not _is_of_tests(name)
    )
    others = [each for each in sys.modules if packages and each.startswith(packages)]
    names |= dict.fromkeys(each for each in sorted(others) if not _is_of_tests(each))
    found = map(sys.modules.get, names)
    return [each for each in found if isinstance(each, ModuleType)]


def _is_of_tests(module: str) -> bool:
    *folders, name = module.split(".")
    is_test = name == "conftest" or name.startswith("test_") or name.endswith("_test")
    return is_test or not {"test", "tests"}.isdisjoint(folders)


def _types_of(modules: list[ModuleType]) -> dict[str, JobType[..., Any]]:
    values = [each for module in modules for each in list(vars(module).values())]
    return {each.name: each for each in values if isinstance(each, JobType)}


def _resources_of(modules: list[ModuleType]) -> dict[type, Resource[Any]]:
    found: dict[type, Resource[Any]] = {}
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, Resource):
                found.setdefault(value.kind, value)
    return found
