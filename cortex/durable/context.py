"""The context of a job's handler: its steps, model calls, tool calls, concurrency.

A handler is ordinary async code. It makes every call that must not happen twice through its
context. After a crash it runs again from its top, on any pod, and gets the recorded results.

Long because a handler's calls are one class, and type checkers need overloads of some.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, overload
from uuid import UUID

import attrs
import trio

from cortex.domain.approvals.approval import Follow, Risk
from cortex.domain.approvals.defaults import EXPIRES_DEFAULT_S, RISK_DEFAULT
from cortex.domain.budget import BudgetShare
from cortex.domain.callbacks import EXPIRES_DEFAULT_S as CALLBACK_DEFAULT_S
from cortex.domain.callbacks import checked_expiry
from cortex.domain.control_flow import Suspended, together
from cortex.domain.errors import InvalidValueError
from cortex.domain.file import File
from cortex.domain.job import RUN_AGENT, StepKind
from cortex.domain.log_line import Level
from cortex.domain.messages.message import check_key
from cortex.domain.messages.topic import check_topic
from cortex.domain.model import Block, CacheTtl, ModelOptions, ModelRequest, ModelResponse
from cortex.domain.model_options import NO_OPTIONS, check_options, checked_fallback
from cortex.domain.published import CHUNK, checked_progress
from cortex.domain.retry import CALL_RETRIES, CallRetry, Urgency
from cortex.domain.signals import check_name
from cortex.domain.timeouts import check_timeout
from cortex.domain.usage import Usage
from cortex.durable.attempt import Attempt, JobLimits, Planner, Services, ToolCall
from cortex.durable.body_schema import body_schema
from cortex.durable.callbacks import callback_url
from cortex.durable.calls import Caller
from cortex.durable.children import (
    Child,
    ChildMap,
    ChildOptions,
    Family,
    arguments_of,
    refuse_ambiguous,
)
from cortex.durable.codec import (
    JSON,
    NO_INPUT,
    StepInput,
    as_json,
    decode,
    encode,
    input_of,
    refuse_unstorable,
)
from cortex.durable.contenders import Contender, WaitKind
from cortex.durable.effects import OwnEffect, Reconcile, takes_invocation
from cortex.durable.files import keep_all, with_references
from cortex.durable.first_of import Winner, first_of
from cortex.durable.gates import Decision, Gate, own_gate, refused
from cortex.durable.generation import Generated
from cortex.durable.job_log import write_line
from cortex.durable.outputs import OutputCall, output_of
from cortex.durable.outside import Outside
from cortex.durable.pausing import unpaused
from cortex.durable.published import State
from cortex.durable.registry import JobType
from cortex.durable.repeating import repeated
from cortex.durable.results import CallableTool, ResultType, result_type
from cortex.durable.signals import NO_DEFAULT, UNTIL, Reception, receive
from cortex.durable.step_arguments import given_to
from cortex.durable.step_clock import StepClock
from cortex.durable.step_outcome import (
    StepLimit,
    StepOutcome,
    outcome_in_thread,
    outcome_of,
    outcome_within,
)
from cortex.durable.stray_errors import raise_all, unless_cancelled
from cortex.durable.threads import called, is_async
from cortex.durable.timers import SHORT_S, length_of, sleep_until, timer_input
from cortex.durable.tool_calls import call_tool, refusing

Result = TypeVar("Result")
One = TypeVar("One")
Two = TypeVar("Two")
Three = TypeVar("Three")
Four = TypeVar("Four")
Five = TypeVar("Five")
GATE_NAME_MAX = 480
PATCH_CHARS_MAX = 200
CONCURRENCY = 50
"""Children of one map at once."""


class Context:
    """One attempt of one job, as its handler sees it."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._journal = attempt.journal
        self._outside = Outside(attempt)

    @property
    def services(self) -> Services:
        return self._attempt.services

    @property
    def job_id(self) -> UUID:
        return self._attempt.job_id

    @property
    def family(self) -> Family:
        """Submits children whose arguments may have any name; `call` and `map` are for handlers."""
        return Family(self._attempt)

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1; raised whenever the job is started again."""
        return self._attempt.number

    @property
    def usage(self) -> Usage:
        """Tokens that the job has used so far, in all its attempts."""
        return self._journal.usage

    @property
    def cost_usd(self) -> Decimal:
        """Cost of the job so far, as far as prices are known."""
        return self._journal.cost_usd

    @property
    def workspace(self) -> Path:
        """Folder of this job's own files; may not exist yet, or be on another machine.

        A job that continues a failed one works in the folder of the first of them.
        """
        return self._attempt.workspace

    @property
    def traceparent(self) -> str | None:
        """Header of W3C Trace Context for what this step, or the handler, calls.

        None while spans are not exported, unless the job was submitted in a trace.
        """
        return self._attempt.traceparent(self._journal.current_key)

    def log(self, message: str, /, level: str = "info", **fields: Any) -> None:
        """Write a line to the job's log: `cortex logs` shows it with this step and attempt.

        `level`: debug, info, warning, error or critical. `fields` are kept beside the text. May be
        called from any thread that the job has started; never waits. A handler that runs again
        after a crash writes its lines again, with the number of the new attempt.
        """
        write_line(message, Level.of_word(level), fields)

    async def agent_spec(self) -> dict[str, Any] | None:
        """Return the specification of the agent version that the job was submitted with."""
        return await self._attempt.agent_spec()

    async def limits(self) -> JobLimits:
        """Return the limits of the job's calls: those that it began with."""
        return await self._attempt.limits()

    async def caller(self, key: str) -> Caller:
        """Return the caller for calls made by step `key`."""
        return await self._attempt.caller(key)

    @contextmanager
    def clocked(self, limit_s: float) -> Iterator[trio.CancelScope]:
        """Limit several calls together, in seconds; the time for recording is extra."""
        clock = self._journal.clock = StepClock(limit_s)
        try:
            with clock.scope:
                yield clock.scope
        finally:
            self._journal.clock = None

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[Result]],
        *args: Any,
        timeout: float | None = None,
        repeat: Urgency | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Result],
        *args: Any,
        timeout: float | None = None,
        repeat: Urgency | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Result]: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        repeat: Urgency | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Any]:
        """Run `await function(*args, **kwargs)` once in the life of the job; return its result.

        A function that is not async runs in a thread, which is left behind on a time-out; its time
        starts with its thread, of which a pod has 500. Arguments are JSON, attrs classes,
        dataclasses or Pydantic models; the result, too, and it comes back in the type that the
        function declares, or else as plain JSON. `timeout` is in seconds, 600 by default, at
        most 900 or the limit of the job, and raises `TimedOutError`. A repeated name becomes
        `name#2`. With `repeat` the function is called again inside the step after a transient
        failure, so it may run twice.
        """
        key = self._journal.key(name)
        result = result_type(function)
        given = input_of(given_to(function, args, kwargs), what=f"input of step {key!r}")
        if timeout is not None:
            self._attempt.check_step_timeout(timeout, source=f"step {key!r}: timeout")
        bound = self.services.resources.bind(function, args, *kwargs)
        call = bound if is_async(function) else partial(called, bound)
        run = partial(call, *args, **kwargs)
        if repeat is not None:
            run = partial(self._repeated, key, run, CALL_RETRIES[repeat])
        known_s = timeout or self._attempt.known_step_s
        limit_s: StepLimit | None = known_s or self._attempt.step_s
        # A scope of its own would cost the step a tenth of its time in this process.
        scope = self._journal.step_scope if timeout is None and repeat is None else None
        if call is not bound and repeat is None:
            least_s: StepLimit = known_s or self._attempt.step_s
            run, limit_s = partial(outcome_in_thread, function, run, key, least_s), None
        elif known_s is not None and scope is not None:
            run, limit_s = partial(outcome_within, scope, run, key, known_s), None
        elif known_s is not None and self._attempt.cuts(known_s):
            run, limit_s = partial(outcome_of, run), None
        step = self._journal.once(
            StepKind.STEP, key, given=given, run=run, limit_s=limit_s, result=result
        )
        return self._journal.promised(key, step)

    def asyncio(
        self,
        function: Callable[..., Awaitable[Result]],
        *args: Any,
        name: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Result]:
        """Run code of an asyncio library as a step: `await function(*args, **kwargs)` in its loop.

        The loop runs in a thread of its own and lives as long as the process, so clients may be
        kept in it. The step has the name of the function unless one is given, and is otherwise like
        any other: see `step`. Cancelled or timed out, the asyncio task is cancelled, too.
        """
        # asyncio is only imported by those who need it
        from cortex.durable.asyncio_thread import on_asyncio  # noqa: PLC0415

        chosen = _name(function).rpartition(".")[2] if name is None else name
        return self.step(chosen, on_asyncio(function), *args, timeout=timeout, **kwargs)

    def group(
        self, name: str, function: Callable[[], Awaitable[Any]], *, given: dict[str, Any]
    ) -> Coroutine[None, None, Any]:
        """Run an async function whose own steps are parts of this one; return its recorded result.

        Without a time limit. Once its result is on record, its parts are not asked for again.
        `given`: its input, by name.
        """
        key = self._journal.key(name)
        stands_for = input_of(given, what=f"input of group {key!r}")

        async def run() -> StepOutcome:
            return StepOutcome(value=await function())

        group = self._journal.group(key, given=stands_for, run=run)
        return self._journal.promised(key, group)

    def patched(self, patch: str) -> bool:
        """Return whether the job takes the new branch of a change to its code.

        True if the job comes here first under this code, and recorded: with its next step, or
        before it calls anything outside or waits. False if it came here under older code: if its
        record, made by another code version, holds anything that this code has not requested yet
        (a step, an effect, a question to people). One decision per job and `patch`, at whatever
        places it is asked for; text of 1 to 200 characters. See docs/guides/code-changes.md.
        """
        if not 1 <= len(patch) <= PATCH_CHARS_MAX:
            raise InvalidValueError(
                f"patch {patch!r:.60} is not text of 1 to {PATCH_CHARS_MAX} characters"
            )
        return self._journal.patched(patch)

    def was_recorded(self, name: str) -> bool:
        """Return whether an earlier attempt has recorded a step of this name."""
        return self._journal.recorded(name)

    @property
    def has_asked_people(self) -> bool:
        """Whether people had decided something for this job before this attempt began."""
        return self._journal.has_asked_people

    def for_agent(self, agent_id: UUID, version: int) -> "Context":
        """Return a context of the same attempt whose calls are those of an agent.

        The agent's secrets, approval rules, limits and budgets apply. Both contexts share one
        record: their steps need different names.
        """
        attempt = self._attempt
        claim = attrs.evolve(attempt.claim, agent_id=agent_id, agent_version=version)
        of_agent = Attempt(
            claim,
            self._journal,
            self.services,
            final=attempt.final,
            find_type=attempt.find_type,
        )
        return Context(of_agent)

    def _known(self, job: object) -> object:
        """Return the type of a name that this process has."""
        return self._attempt.find_type(job) if isinstance(job, str) else job

    def now(self, name: str = "now") -> Coroutine[None, None, datetime]:
        """Return the time of the database's clock; a replay gets the same.

        A step: `name` is its name, which concurrent code gives each call for itself.
        """
        key, clock = self._journal.key(name), self.services.clock

        async def read() -> StepOutcome:
            return StepOutcome(value=(await clock.now()).isoformat())

        async def now() -> datetime:
            given = NO_INPUT
            return datetime.fromisoformat(
                await self._journal.once(StepKind.STEP, key, given=given, run=read)
            )

        return self._journal.promised(key, now())

    def uuid(self, name: str = "uuid") -> UUID:
        """Return a new UUID (version 7); a replay gets the same.

        Recorded with the job's next step, or before it calls anything outside or waits. `name` as
        of `now`.
        """
        key = self._journal.key(name)
        return UUID(self._journal.noted(key, lambda: str(self.services.gateway.new_id())))

    @property
    def state(self) -> State:
        """A small state that others can read while the job runs: `ctx.state["phase"] = "load"`.

        JSON values by key, at most 64 keys and 16 KiB. It costs no query: changes are published
        before the next step is recorded, and at the latest a quarter of a second later. Read by
        `cortex jobs state`, `handle.state()` and the HTTP API.
        """
        return self._attempt.published.state

    def progress(self, done: float, total: float, unit: str = "") -> None:
        """Publish how far the job has come: `ctx.progress(3, 10, "pages")` is a bar in all lists.

        Cheap enough for each item of a loop: it is published as `state` is. May be called from any
        thread that the job has started.
        """
        self._attempt.published.progress(checked_progress(done, total, unit))

    def emit(self, chunk: Any, *, name: str = "emit") -> Coroutine[None, None, None]:
        """Add a chunk to the job's stream; return once it is on record.

        Those who follow the job get each chunk once and in order, whatever is killed meanwhile.
        JSON of at most 64 KiB; at most 10,000 chunks and 16 MiB per job. `name` is that of its
        step; concurrent code gives each stream its own.
        """
        key = self._journal.key(name)
        text = encode(chunk, what=f"chunk {key!r}", limit=CHUNK)
        self._attempt.published.count_chunk(key, len(text))
        given = input_of({"chunk": decode(text)}, what=f"chunk {key!r}")

        async def compose() -> StepOutcome:
            return StepOutcome(value=chunk)

        async def emit_once() -> None:
            await self._journal.once(StepKind.EMIT, key, given=given, run=compose)

        return self._journal.promised(key, emit_once())

    def sleep(
        self,
        name: str,
        seconds: float | None = None,
        *,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> Coroutine[None, None, None]:
        """Wait, also for days; a job that sleeps holds no resources and survives its pod.

        The end is fixed when the job first comes here, by the database's clock, and recorded as a
        step: another length in new code is for jobs that come here later. People see the state
        `sleep`, and `name` as its reason. Beside concurrent code that waits for something else,
        such as a decision, it goes on only after that, too.
        """
        length = length_of(name, seconds=seconds, minutes=minutes, hours=hours, days=days)
        key = self._journal.key(name)
        given = timer_input(length)
        clock = self.services.clock

        async def fix() -> StepOutcome:
            await self._journal.settled(
                key
            )  # a job that leaves its pod keeps only what it recorded
            return StepOutcome(value=(await clock.now() + length).isoformat())

        async def wait() -> None:
            instant = self._attempt.instants.get(key)
            if instant is None:
                end = await self._journal.once(StepKind.STEP, key, given=given, run=fix)
                self._attempt.instants[key] = instant = datetime.fromisoformat(end)
            await sleep_until(instant, name=name, clock=clock)

        self._attempt.contenders[key] = Contender(WaitKind.SLEEP, wait)
        return self._journal.promised(key, wait())

    @overload
    def receive(
        self,
        name: str,
        type: None = None,
        *,
        timeout: float | timedelta | None = None,
        default: Any = NO_DEFAULT,
        key: str | None = None,
    ) -> Coroutine[None, None, Any]: ...
    @overload
    def receive(
        self,
        name: str,
        type: type[Result],
        *,
        timeout: float | timedelta | None = None,
        key: str | None = None,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def receive(
        self,
        name: str,
        type: type[Result],
        *,
        timeout: float | timedelta,
        default: One,
        key: str | None = None,
    ) -> Coroutine[None, None, Result | One]: ...
    def receive(
        self,
        name: str,
        type: Any = None,  # noqa: A002 -- what job code calls it
        *,
        timeout: float | timedelta | None = None,
        default: Any = NO_DEFAULT,
        key: str | None = None,
    ) -> Coroutine[None, None, Any]:
        """Return the next signal of a name, also one sent before; wait while there is none.

        A waiting job holds no resources and survives its pod. Signals of a name are received in the
        order of arrival, each once, and are plain JSON, or a `type` as `step` returns it. With a
        `key`, those sent to that key instead of the job: also before the job existed, within 24
        hours.

        `timeout`: seconds, or a `timedelta`, from the moment when the job first has to wait here;
        then raises `TimedOutError`, or returns `default`. Raises `InvalidSignalError` for a signal
        that does not fit `type`: this call has consumed it, the next one gets the next.
        """
        reception = Reception.checked(name, type, key=key, timeout=timeout, default=default)
        step = self._journal.key(name)
        until = self._journal.key(f"{step} {UNTIL}")
        look = partial(receive, self._attempt, step, until, reception)
        self._attempt.contenders[step] = Contender(WaitKind.SIGNAL, look)
        return self._journal.promised(step, look())

    async def sleep_until(self, name: str, instant: datetime, *, short_s: float = SHORT_S) -> None:
        """Wait for an instant that is in the record, such as one of a payload or of a step.

        The same as `sleep`, without a step of its own. A rest of up to `short_s` seconds is waited
        for in the pod.
        """
        await sleep_until(instant, name=name, clock=self.services.clock, short_s=short_s)

    def callback_url(
        self, name: str, *, expires: float | timedelta = CALLBACK_DEFAULT_S, schema: Any = None
    ) -> Coroutine[None, None, str]:
        """Return a URL to which anybody may POST JSON, which arrives as a signal `name`.

        `receive(name)` gets it. The URL is the same on every replay, and in no record: it is a
        secret of its receiver. It takes signals of this name for this job alone, for `expires`
        seconds, 7 days by default, until the job ends. `schema`: a type or a JSON schema that each
        body must fit. The same body, or the same `Idempotency-Key`, counts once. Needs the settings
        `public_url` and `callback_secret`.
        """
        check_name(name)
        what = f"callback {name!r:.60}"
        expires_s = checked_expiry(expires, what=what)
        wanted = body_schema(schema, what=what)
        key = self._journal.key(f"{name} callback")
        url = callback_url(self._attempt, key, name, expires_s=expires_s, schema=wanted)
        return self._journal.promised(key, url)

    @overload
    def spawn(
        self,
        job: JobType[..., Result],
        /,
        *,
        name: str | None = None,
        detached: bool = False,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Child[Result]]: ...
    @overload
    def spawn(
        self,
        job: str,
        /,
        *,
        name: str | None = None,
        detached: bool = False,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Child[Any]]: ...
    def spawn(
        self,
        job: JobType[..., Any] | str,
        /,
        *,
        name: str | None = None,
        detached: bool = False,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Child[Any]]:
        """Submit a job once in the life of this one, its child; `await child.result()` waits.

        `job` is a handler, or the name of a job type; `arguments` are the handler's. The child has
        retries, a timeout and a queue of its own, the tenant of its parent, and its priority unless
        another is given. It is cancelled when its parent ends, unless it is `detached`. `delay`:
        earliest start, in seconds from now. `budget`: how much it may spend of its parent's
        budgets, `{"usd": 0.50}` or `{"tokens": 20_000}`. The step has the name of the job type
        unless one is given. `payload`: all arguments in one mapping, where one of them is named
        like an option. See docs/guides/children.md.
        """
        options = ChildOptions(
            name=name,
            detached=detached,
            queue=queue,
            priority=priority,
            delay=delay,
            timeout_s=timeout_s,
            max_retries=max_retries,
            agent=agent,
            tags=tags,
            budget=budget,
        )
        given = arguments_of(self._known(job), arguments, payload, options)
        return Family(self._attempt).spawn(job, given, options)

    @overload
    def call(
        self,
        job: JobType[..., Result],
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def call(
        self,
        job: str,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Any]: ...
    def call(
        self,
        job: JobType[..., Any] | str,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, Any]:
        """Submit a child as `spawn` does, wait for its end and return its result.

        This job holds no resources meanwhile. Raises `ChildFailedError` if the child failed or was
        cancelled.
        """
        options = ChildOptions(
            name=name,
            queue=queue,
            priority=priority,
            delay=delay,
            timeout_s=timeout_s,
            max_retries=max_retries,
            agent=agent,
            tags=tags,
            budget=budget,
        )
        given = arguments_of(self._known(job), arguments, payload, options)
        return Family(self._attempt).call(job, given, options)

    @overload
    def map(
        self,
        job: JobType[..., Result],
        items: Iterable[Any],
        /,
        *,
        concurrency: int = CONCURRENCY,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        **shared: Any,
    ) -> ChildMap[Result]: ...
    @overload
    def map(
        self,
        job: str,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        concurrency: int = CONCURRENCY,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        **shared: Any,
    ) -> ChildMap[Any]: ...
    def map(
        self,
        job: JobType[..., Any] | str,
        items: Iterable[Any],
        /,
        *,
        concurrency: int = CONCURRENCY,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        **shared: Any,
    ) -> ChildMap[Any]:
        """Submit a child for each item; `async for` yields their results in order.

        An item is the handler's first argument, `shared` are its others; for a type by its name an
        item is a mapping of arguments by name. At most `concurrency` children run at once, 50 by
        default, and at most 100,000 are of one map; each of them has the `budget`. Results come in
        parts, which grow with what was taken: this job holds no resources in between. A failed
        child raises `ChildFailedError` in its turn; the others are cancelled when this job ends.
        """
        options = ChildOptions(
            name=name,
            queue=queue,
            priority=priority,
            timeout_s=timeout_s,
            max_retries=max_retries,
            tags=tags,
            budget=budget,
        )
        hint = "map it by its name: its items are mappings of all arguments"
        refuse_ambiguous(job, options, hint=hint, is_map=True)
        return Family(self._attempt).map(
            job, items, shared, concurrency=concurrency, options=options
        )

    def submit(
        self,
        job: JobType[..., Any] | str,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tags: Sequence[str] = (),
        budget: BudgetShare | None = None,
        payload: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> Coroutine[None, None, UUID]:
        """Submit a job that nobody waits for, once in the life of this one; return its id.

        The same as `spawn(…, detached=True)`: it goes on when this job ends.
        """
        options = ChildOptions(
            name=name,
            detached=True,
            queue=queue,
            priority=priority,
            delay=delay,
            timeout_s=timeout_s,
            max_retries=max_retries,
            agent=agent,
            tags=tags,
            budget=budget,
        )
        given = arguments_of(self._known(job), arguments, payload, options)
        return Family(self._attempt).submit(job, given, options)

    @overload
    def llm(
        self,
        name: str,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        system: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int = 4096,
        options: ModelOptions = NO_OPTIONS,
        cache: CacheTtl | Literal["5m", "1h", "off"] = "off",
        output: None = None,
        fallback: Sequence[str] = (),
        batch: bool = False,
        timeout: float | None = None,
        urgency: Urgency = "default",
    ) -> Coroutine[None, None, ModelResponse]: ...
    @overload
    def llm(
        self,
        name: str,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        system: str = "",
        max_tokens: int = 4096,
        options: ModelOptions = NO_OPTIONS,
        cache: CacheTtl | Literal["5m", "1h", "off"] = "off",
        output: type[Result],
        fallback: Sequence[str] = (),
        batch: bool = False,
        timeout: float | None = None,
        urgency: Urgency = "default",
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def llm(
        self,
        name: str,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        system: str = "",
        max_tokens: int = 4096,
        options: ModelOptions = NO_OPTIONS,
        cache: CacheTtl | Literal["5m", "1h", "off"] = "off",
        output: Mapping[str, Any],
        fallback: Sequence[str] = (),
        batch: bool = False,
        timeout: float | None = None,
        urgency: Urgency = "default",
    ) -> Coroutine[None, None, Any]: ...
    def llm(
        self,
        name: str,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        system: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int = 4096,
        options: ModelOptions = NO_OPTIONS,
        cache: CacheTtl | Literal["5m", "1h", "off"] = "off",
        output: Any = None,
        fallback: Sequence[str] = (),
        batch: bool = False,
        timeout: float | None = None,
        urgency: Urgency = "default",
    ) -> Coroutine[None, None, Any]:
        """Call a model once in the life of the job; return its complete response.

        The response is recorded before this returns: it is never paid for twice. `options`:
        temperature, thinking and so on. `timeout`: seconds for the whole call, at most 450.
        `urgency`: how often and how soon it is repeated inside the step. `fallback`: models that
        are asked in this order while `model` cannot answer, or if it refuses; the response then has
        a `substitution`. `batch`: the call may wait for up to a day at half the price, where the
        provider has batches; meanwhile the job is suspended and holds nothing.
        `cache`: how long the provider keeps the prompt, where it has a cache. Off by default:
        a write costs 1.25 times the input, for an hour twice, and pays only if a later call begins
        with the same tools, system and messages, which then cost a tenth.

        With `output`, return what the answer says as a value of that type: an attrs class, a
        dataclass, a Pydantic model, a TypedDict, or a list of these; a JSON schema gives plain
        JSON. An answer that does not fit is corrected once, in a step `NAME, corrected`; after that
        `InvalidOutputError` names the fields.
        """
        referring, files = with_references(messages, what=f"model call {name!r}")
        request = ModelRequest(
            model=model,
            messages=referring,
            system=system,
            tools=tuple(tools),
            max_tokens=max_tokens,
            options=options,
            cache=_cache_ttl(name, cache),
            fallback=checked_fallback(fallback, model=model, what=f"model call {name!r}"),
            batch=batch,
        )
        if output is None:
            given = self._given(name, request, timeout)
            key = self._journal.key(name)
            whole = self._unpaused(
                key, request, given, files=files, timeout=timeout, urgency=urgency
            )
            return self._journal.promised(key, whole)
        answered = self._answered(
            name, request, output, files=files, timeout=timeout, urgency=urgency
        )
        return self._journal.promised(answered.key, answered.value())

    async def generate(
        self,
        name: str,
        request: ModelRequest,
        *,
        output: Mapping[str, Any] | None,
        timeout: float | None,
        what: str,
    ) -> Generated:
        """Call a model as `llm` does; `what` is what people call it.

        Raises `InvalidOutputError` unless the response is complete.
        """
        referring, files = with_references(request.messages, what=what)
        request = attrs.evolve(request, messages=referring)
        if output is None:
            given = self._given(name, request, timeout)
            key = self._journal.key(name)
            ask = partial(self._unpaused, files=files, timeout=timeout, urgency="default")
            response = await ask(key, request, given)
            return Generated.of(response, what=what)
        call = self._answered(
            name, request, output, files=files, timeout=timeout, urgency="default"
        )
        answer = await call.whole()
        return Generated.of(answer.response, what=what, output=answer.value)

    def _answered(
        self,
        name: str,
        request: ModelRequest,
        output: Any,
        *,
        files: Sequence[File],
        timeout: float | None,
        urgency: Urgency,
    ) -> OutputCall:
        wanted = output_of(output, what=f"model call {name!r}")
        request = attrs.evolve(request, output=wanted.format)
        given = self._given(name, request, timeout)
        return OutputCall(
            output=wanted,
            request=request,
            given=given,
            key=self._journal.key(name),
            keyed=self._journal.key,
            ask=partial(self._unpaused, files=files, timeout=timeout, urgency=urgency),
        )

    def _given(self, name: str, request: ModelRequest, timeout: float | None) -> StepInput:
        """Return the input of a model call; raises for one that no provider takes."""
        what = f"model call {name!r}"
        if timeout is not None:
            check_timeout("llm_call", timeout, source=f"{what}: timeout")
        check_options(
            request.options,
            model=request.model,
            max_tokens=request.max_tokens,
            tools=[str(each.get("name")) for each in request.tools],
            what=what,
        )
        return input_of(request.to_json(), what=f"input of {what}")

    def ask(
        self,
        name: str,
        request: ModelRequest,
        *,
        given: StepInput,
        timeout: float | None = None,
        urgency: Urgency = "default",
    ) -> Coroutine[None, None, ModelResponse]:
        """Call a model once; `given` stands for the request, whose transcript may be long."""
        key = self._journal.key(name)
        asked = self._asked(key, request, given, timeout=timeout, urgency=urgency)
        return self._journal.promised(key, asked)

    async def _unpaused(
        self,
        key: str,
        request: ModelRequest,
        given: StepInput,
        *,
        files: Sequence[File],
        timeout: float | None,
        urgency: Urgency,
    ) -> ModelResponse:
        ask = partial(self._asked, files=files, timeout=timeout, urgency=urgency)
        return await unpaused(ask, key, request, given, keyed=self._journal.key)

    async def _asked(
        self,
        key: str,
        request: ModelRequest,
        given: StepInput,
        *,
        timeout: float | None,
        urgency: Urgency,
        files: Sequence[File] = (),
    ) -> ModelResponse:
        async def respond() -> StepOutcome:
            caller = attrs.evolve(await self.caller(key), retry=CALL_RETRIES[urgency])
            if timeout is not None:
                caller = attrs.evolve(caller, call_s=timeout)
            await self._journal.settled(key)
            self._journal.news += 1
            await keep_all(self._attempt, files)
            return await self.services.models.respond(request, caller)

        response = await self._journal.once(StepKind.MODEL, key, given=given, run=respond)
        return self._journal.restored(key, partial(ModelResponse.from_json, response))

    @overload
    def tool(
        self,
        name: str,
        tool: CallableTool[Awaitable[Result]],
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        timeout: float | None = None,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def tool(
        self,
        name: str,
        tool: CallableTool[Result],
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        timeout: float | None = None,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def tool(
        self,
        name: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        timeout: float | None = None,
        said: str | None = None,
        on_error: Callable[[Exception], Any] | None = None,
        on_edited: Callable[[Decision], None] | None = None,
        refused: Exception | None = None,
        defined: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Coroutine[None, None, Any]: ...
    def tool(
        self,
        name: str,
        tool: str | CallableTool[Any],
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        timeout: float | None = None,
        said: str | None = None,
        on_error: Callable[[Exception], Any] | None = None,
        on_edited: Callable[[Decision], None] | None = None,
        refused: Exception | None = None,
        defined: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Coroutine[None, None, Any]:
        """Call a tool of the pod once in the life of the job.

        Arguments are typed values or JSON. Return the result in the type that the tool's function
        declares, or as plain JSON if the tool is only named.

        `folder` is where the tool reads, the job's workspace by default. `timeout` is in seconds,
        the tool's own by default, at most 600. An error of the tool is raised and not recorded,
        unless `on_error` converts it to a result, which is recorded. If people must approve first,
        they see `said`, and `on_edited` gets the arguments that they changed. A call that is
        `refused` fails with this error: the tool does not run, and nobody is asked. `defined`:
        what `mcp_tools` returned about a tool of an MCP server; `answers`: to what that has asked.
        """
        if timeout is not None:
            check_timeout("tool_call", timeout, source=f"tool call {name!r}: timeout")
        # What a model gave is JSON, and stays as it is.
        if not isinstance(tool, str) or not JSON.issuperset(map(type, arguments.values())):
            arguments = as_json(arguments, what=f"input of tool call {name!r}")
        return self._called(
            name,
            tool if isinstance(tool, str) else tool.name,
            arguments,
            result=None if isinstance(tool, str) else result_type(tool.run),
            folder=folder,
            timeout=timeout,
            said=said,
            on_error=on_error,
            on_edited=on_edited,
            planner=None if refused is None else partial(refusing, refused),
            defined=defined,
            answers=answers,
        )

    def mcp_tools(
        self, name: str, *, folder: Path | None = None
    ) -> Coroutine[None, None, list[dict[str, Any]]]:
        """Return the tools of the MCP servers of the job's agent, listed once in its life."""
        key = name

        async def listed() -> list[dict[str, Any]]:
            return await self.services.tools.listed(self._attempt, step=key, folder=folder)

        return self.step(name, listed)

    def tool_as_stored(
        self,
        name: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        computed: frozenset[str] | None,
        timeout: float | None = None,
    ) -> Coroutine[None, None, Any]:
        """Call a tool like `tool`, with arguments that may be older than this pod's code.

        For built-in job types: see `ToolCall.computed`. Raises `Unfit` for others that do not fit.
        """
        return self._called(name, tool, arguments, timeout=timeout, computed=computed)

    def planned(
        self,
        name: str,
        call: str,
        arguments: Mapping[str, Any],
        planner: Planner,
        *,
        timeout: float | None = None,
    ) -> Coroutine[None, None, Any]:
        """Make a call that is none of the pod's tools once, as `planner` plans it.

        For built-in job types: `call` names it in effects, quotas and facts.
        """
        return self._called(name, call, arguments, timeout=timeout, planner=planner)

    def _called(
        self,
        name: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path | None = None,
        timeout: float | None = None,
        said: str | None = None,
        on_error: Callable[[Exception], Any] | None = None,
        on_edited: Callable[[Decision], None] | None = None,
        planner: Planner | None = None,
        computed: frozenset[str] | None = None,
        result: ResultType | None = None,
        defined: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Coroutine[None, None, Any]:
        # A step name that was valid before decisions existed must stay valid.
        key = self._journal.key(name)
        gate_key = self._journal.key(f"{name[:GATE_NAME_MAX]} approval")
        given = input_of({"tool": tool, "arguments": arguments}, what=f"input of tool call {key!r}")
        call = ToolCall(
            tool=tool,
            arguments=arguments,
            key=key,
            gate_key=gate_key,
            said=said,
            folder=folder,
            timeout_s=timeout,
            computed=computed,
            defined=defined,
            answers=answers or {},
        )

        async def answer() -> Any:
            run = partial(call_tool, self._attempt, self._outside, call, on_error, planner=planner)
            answer = await self._journal.once(
                StepKind.TOOL, key, given=given, run=run, result=result
            )
            if on_edited is not None:
                stored = self._journal.decision(gate_key)
                if stored is not None and stored["was_edited"]:
                    restore = partial(Decision.from_json, stored, asked=arguments)
                    on_edited(self._journal.restored(gate_key, restore))
            return answer

        return self._journal.promised(key, answer())

    @overload
    def effect(
        self,
        name: str,
        function: Callable[..., Awaitable[Result]],
        *args: Any,
        reconcile: Reconcile | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Result]: ...
    @overload
    def effect(
        self,
        name: str,
        function: Callable[..., Result],
        *args: Any,
        reconcile: Reconcile | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Result]: ...
    def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        reconcile: Reconcile | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[None, None, Any]:
        """Make an outside call once: `await function(*args, **kwargs)`, its intent recorded first.

        A function that is not async runs in a thread, which a time-out leaves behind: what it calls
        needs a limit of its own, below `timeout`, or it may apply what `reconcile` did not find. A
        first parameter annotated `Invocation` is filled in: its `id` is the idempotency key for the
        other side, its `attempt` a fencing token. After a crash in between, `reconcile`, an async
        function of the invocation, returns the fate of the call: `Applied(result)`, `NotApplied()`
        or `Unknown(why)`. Without it an `idempotent` call is made again with the same id; for any
        other call a person is asked. `timeout` is in seconds, as of a step. The result comes back
        in the type that the function declares; it is None if only the fact is known.

        An error that leaves open whether the call was applied is only raised once that is known,
        except for an idempotent call, which the job's retries make again.
        """
        key = self._journal.key(name)
        has_invocation = takes_invocation(function)
        values = given_to(function, args, kwargs, skipped=int(has_invocation))
        given = input_of(values, what=f"input of effect {key!r}")
        if timeout is not None:
            self._attempt.check_step_timeout(timeout, source=f"effect {key!r}: timeout")
        resources = self.services.resources
        own = OwnEffect(
            key=key,
            name=_name(function),
            function=resources.bind(function, args, *kwargs, skipped=int(has_invocation)),
            args=args,
            kwargs=kwargs,
            given=values,
            has_invocation=has_invocation,
            reconcile=None if reconcile is None else resources.bind(reconcile, skipped=1),
            is_idempotent=idempotent,
            timeout_s=timeout,
        )
        run = partial(self._outside.make, own)
        result, was_recorded = result_type(function), self._journal.recorded(key)

        async def answer() -> Any:
            found = await self._journal.once(StepKind.EFFECT, key, given=given, run=run)
            # What was applied is on record by now. Without a result it was found out later.
            if result is None or found is None:
                return found
            if was_recorded:
                return self._journal.converted(key, found, result)
            return result.restore(found, f"output of effect {key!r}")

        return self._journal.promised(key, answer())

    def keep_files(
        self, name: str, read: Callable[[], list[File]], *, given: dict[str, Any]
    ) -> Coroutine[None, None, list[Block]]:
        """Keep files once in the life of the job: one step, which returns references to them.

        `read` is called in a thread; `given` is what it reads, by name.
        """
        key = self._journal.key(name)
        stands_for = input_of(given, what=f"input of step {key!r}")

        async def run() -> StepOutcome:
            files = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            await keep_all(self._attempt, files)
            return StepOutcome(value=[each.stored.block() for each in files])

        step = self._journal.once(StepKind.STEP, key, given=stands_for, run=run)
        return self._journal.promised(key, step)

    def publish(
        self,
        topic: str,
        payload: Mapping[str, Any],
        *,
        key: str | None = None,
        name: str | None = None,
    ) -> Coroutine[None, None, None]:
        """Publish a message once in the life of the job: it is written with its step.

        `payload` is a JSON object. Messages of one `key` are sent one after another, in order.
        Subscriptions decide who gets it; see `cortex subscriptions`. `name` is that of the step,
        `publish TOPIC` by default; concurrent code gives each its own.
        """
        check_topic(topic)
        check_key(key)
        step = self._journal.key(name or f"publish {topic}")
        document = {"topic": topic, "payload": dict(payload), "key": key}
        given = input_of(document, what=f"message {step!r}")

        async def compose() -> StepOutcome:
            await self._journal.settled(step)
            return StepOutcome(value=document)

        async def publish_once() -> None:
            await self._journal.once(StepKind.MESSAGE, step, given=given, run=compose)

        return self._journal.promised(step, publish_once())

    def approve(
        self,
        name: str,
        *,
        detail: Mapping[str, Any] | None = None,
        risk: Risk | str = RISK_DEFAULT,
        effect: str | None = None,
        reversible: bool | None = None,
        people: int | None = None,
        expires_s: float = EXPIRES_DEFAULT_S,
        schema: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> Coroutine[None, None, Decision]:
        """Wait until people agree; return their decision. A waiting job holds no resources.

        `detail` is what they see and agree to, plain JSON; with a JSON `schema` they may edit it,
        and the decision's `arguments` are what they agreed to. `people` different persons must
        agree: one by default, two for a CRITICAL risk. `expires_s` is from 60 seconds to 30 days.
        `reason` explains the question.

        Raises `DeniedError` and, `expires_s` seconds after the question, `ApprovalExpiredError`.
        """
        gate = own_gate(
            name,
            risk=risk,
            effect=effect,
            reversible=reversible,
            people=people,
            expires_s=expires_s,
            policy=reason,
            schema=schema,
        )
        return self._agreed(name, gate, detail)

    def approve_or_end(
        self, name: str, *, detail: Mapping[str, Any], effect: str, reason: str
    ) -> Coroutine[None, None, Decision]:
        """Ask as `approve`, for an agent whose job ends without permission: people see that.

        In another job than one of `run_agent` the error is the code's to handle.
        """
        follow: Follow = "fail" if self._attempt.claim.type == RUN_AGENT else "tell"
        gate = Gate(effect=effect, policy=reason, on_deny=follow, on_expiry=follow)
        return self._agreed(name, gate, detail)

    def _agreed(
        self, name: str, gate: Gate, detail: Mapping[str, Any] | None
    ) -> Coroutine[None, None, Decision]:
        key = self._journal.key(name)
        refuse_unstorable([gate.effect, gate.policy, gate.schema], f"question {key!r}")

        async def ask() -> Decision:
            decision = await self._outside.ask(gate, key, tool=None, arguments=dict(detail or {}))
            if not decision.is_approved:
                raise refused(decision, key)
            return decision

        self._attempt.contenders[key] = Contender(WaitKind.APPROVAL, ask)
        return self._journal.promised(key, ask())

    async def _repeated(
        self, key: str, call: Callable[[], Awaitable[Any]], retry: CallRetry
    ) -> Any:
        caller = attrs.evolve(await self.caller(key), retry=retry)
        services = self.services
        return await repeated(
            call, caller=caller, facts=services.facts, rng=services.rng, final=self._attempt.final
        )

    @overload
    def first(
        self, one: Awaitable[One], two: Awaitable[Two], /, *, name: str = "first"
    ) -> Coroutine[None, None, Winner[One | Two]]: ...
    @overload
    def first(
        self,
        one: Awaitable[One],
        two: Awaitable[Two],
        three: Awaitable[Three],
        /,
        *,
        name: str = "first",
    ) -> Coroutine[None, None, Winner[One | Two | Three]]: ...
    @overload
    def first(
        self, *waits: Awaitable[Result], name: str = "first"
    ) -> Coroutine[None, None, Winner[Result]]: ...
    def first(
        self, *waits: Awaitable[Any], name: str = "first"
    ) -> Coroutine[None, None, Winner[Any]]:
        """Wait for the first of several; the others are withdrawn.

        Of `receive`, `sleep`, `approve`, results of children, and plain steps. Returns which one
        it was, by its `name` and `index`, and its `value`; raises the error of one that ends with
        one, such as `DeniedError`. If several are over when the job looks, the first argument of
        them wins. A signal of a loser stays in its queue, a request to people is cancelled, a
        child is cancelled unless it is detached, a step that runs is cancelled. `name` is that of
        the step that records the winner; concurrent code gives each its own.
        """
        return first_of(self._attempt, name, waits)

    @overload
    async def gather(self, one: Awaitable[One], two: Awaitable[Two], /) -> tuple[One, Two]: ...
    @overload
    async def gather(
        self, one: Awaitable[One], two: Awaitable[Two], three: Awaitable[Three], /
    ) -> tuple[One, Two, Three]: ...
    @overload
    async def gather(
        self,
        one: Awaitable[One],
        two: Awaitable[Two],
        three: Awaitable[Three],
        four: Awaitable[Four],
        /,
    ) -> tuple[One, Two, Three, Four]: ...
    @overload
    async def gather(
        self,
        one: Awaitable[One],
        two: Awaitable[Two],
        three: Awaitable[Three],
        four: Awaitable[Four],
        five: Awaitable[Five],
        /,
    ) -> tuple[One, Two, Three, Four, Five]: ...
    @overload
    async def gather(self, *awaitables: Awaitable[Result]) -> list[Result]: ...
    async def gather(self, *awaitables: Awaitable[Any]) -> Any:
        """Await all of them concurrently and return their results, a list in order.

        For type checkers, the results of up to five awaitables have each their own type.

        The first one that fails cancels the others, and its error is raised unchanged; several that
        fail at the same moment are raised as an exception group. One that must wait (`Suspended`)
        lets the others finish first, so that their work is done once.
        """
        results: list[Any] = [None] * len(awaitables)
        suspended: list[tuple[Suspended, float]] = []
        raised: list[BaseException] = []

        async def keep(index: int, awaitable: Awaitable[Any]) -> None:
            try:
                results[index] = await awaitable
            except Suspended as wish:
                suspended.append((wish, trio.current_time()))
            except BaseException as error:  # noqa: BLE001, ASYNC103 -- raised below
                raised.append(unless_cancelled(error))
                nursery.cancel_scope.cancel(reason="another one has failed")

        try:
            async with trio.open_nursery() as nursery:
                for index, awaitable in enumerate(awaitables):
                    nursery.start_soon(keep, index, awaitable)
        except BaseExceptionGroup as group:
            raised += group.exceptions
        if raised:
            raise_all(raised)
        for wish, since in suspended:
            if wish.delay_s is not None:  # a part of it has passed while the others finished
                wish.delay_s = max(0.0, wish.delay_s - (trio.current_time() - since))
        if suspended:
            raise together([wish for wish, _ in suspended])
        return results


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _cache_ttl(name: str, ttl: str) -> CacheTtl:
    if ttl not in tuple(CacheTtl):
        message = f"model call {name!r}: cache is {ttl!r}, not one of {', '.join(CacheTtl)}"
        raise InvalidValueError(message)
    return CacheTtl(ttl)
