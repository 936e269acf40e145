"""One run of a flow: its steps are compiled to calls of the job's context.

What a run does depends only on its inputs, the flow's version and recorded results, so that it
continues after a crash like any job. The name of a step is its key in the record; `fetch[3]` is the
fourth item of a step with `for_each`. A step with `on_error: continue` is a group: its outcome,
good or bad, is recorded, and so the same on a replay. Failures that `retry` answers are recorded as
`fetch failure 1`; the job leaves the pod until the next try, which has the same key again, so that
an effect keeps its invocation id.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import structlog
import trio

from cortex.agent import loop
from cortex.agent.prompt_files import kept_files
from cortex.agent.secrets import Secrets
from cortex.agent.spec import AgentSpec
from cortex.agent.workspace.timeout_lines import TimeoutLine, append_line
from cortex.domain.backoff import Backoff
from cortex.domain.classification import describe, failure_of
from cortex.domain.control_flow import Suspended, together
from cortex.domain.errors import (
    ChildFailedError,
    DivergedError,
    InvalidValueError,
    RejectedError,
    TimedOutError,
)
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.model import ModelRequest
from cortex.domain.retry import RETRY_AFTER_MAX_S
from cortex.domain.waiting import SLEEP
from cortex.durable.children import ChildMap
from cortex.durable.context import Context
from cortex.durable.generation import conversation
from cortex.durable.http_calls import HttpCall
from cortex.durable.structuring import structure_discreetly
from cortex.flows.expression import is_true, paths
from cortex.flows.functions import ExpressionError, as_json
from cortex.flows.spec import FlowSpec, FlowStep, StepRetry
from cortex.flows.step_kinds import (
    KINDS,
    AgentStep,
    ApproveStep,
    JobStep,
    LlmStep,
    PublishStep,
    ToolStep,
)
from cortex.flows.template import Path as Place
from cortex.flows.template import expressions, filled

ITEMS_MAX: Final = 10_000
"""Of a step with `for_each`."""
RESULTS_MAX_BYTES: Final = 16_777_216
"""Of all items of a step together, as JSON: a resumed job has them all in memory."""
LEAST_PAUSE_S: Final = 0.05
STORED: Final = frozenset({"inputs", "flow", "job"})
"""Roots of expressions whose values are as old as the job."""

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class FlowResult:
    """What a run of a flow returns."""

    flow: str
    version: int
    steps: dict[str, str]
    """How each step ended: completed, skipped or failed."""
    result: Any


Outcome = dict[str, Any]
"""`status`, `result` and `error` of a step, as expressions see it."""
SKIPPED: Final[Outcome] = {"status": "skipped", "result": None, "error": None}


class FlowRun:
    """The steps of one attempt."""

    def __init__(
        self, ctx: Context, spec: FlowSpec, *, version: int, inputs: Mapping[str, Any]
    ) -> None:
        self._ctx = ctx
        self._spec = spec
        self._version = version
        self._steps = {step.name: step for step in spec.steps}
        self._left = {step.name: spec.needs(index) for index, step in enumerate(spec.steps)}
        self._ended: dict[str, Outcome] = {}
        self._scope = {
            "inputs": spec.inputs_of(inputs),
            "steps": self._ended,
            "flow": {"name": spec.name, "version": version},
            "job": {"id": str(ctx.job_id)},
        }

    async def run(self) -> FlowResult:
        await self._all_of(self._ready())
        last = self._spec.steps[-1].name
        result = self._ended[last]["result"]
        if self._spec.result is not None:
            result = self._filled(self._spec.result, self._scope, "result")
        return FlowResult(
            flow=self._spec.name,
            version=self._version,
            steps={name: self._ended[name]["status"] for name in self._steps},
            result=result,
        )

    def _ready(self) -> list[str]:
        """Return the steps that can begin now, each only once."""
        names = [
            name for name, needs in self._left.items() if all(need in self._ended for need in needs)
        ]
        for name in names:
            del self._left[name]
        return names

    async def _all_of(self, names: Sequence[str]) -> None:
        await self._ctx.gather(*(self._from(name) for name in names))

    async def _from(self, name: str) -> None:
        """Run a step, and then those that waited for it alone."""
        ready = [name]
        while len(ready) == 1:
            step = self._steps[ready[0]]
            self._ended[step.name] = await self._outcome(step)
            ready = self._ready()
        if ready:
            await self._all_of(ready)

    async def _outcome(self, step: FlowStep) -> Outcome:
        if step.for_each is None:
            return await self._once(step, step.name, self._scope)
        items = self._filled(step.for_each, self._scope, f"step {step.name!r}: for_each")
        if not isinstance(items, list):
            raise InvalidValueError(f"step {step.name!r}: for_each is no list")
        if len(items) > ITEMS_MAX:
            raise InvalidValueError(
                f"step {step.name!r}: for_each has {len(items):,} items, at most {ITEMS_MAX:,}",
                hint="submit one job for each part of the list",
            )
        each_of = self._children if step.uses == "job" else self._each
        outcomes = await each_of(step, items)
        errors = [each["error"] for each in outcomes]
        failed = next((error for error in errors if error is not None), None)
        return {
            "status": "completed" if failed is None else "failed",
            "result": [each["result"] for each in outcomes],
            "error": failed,
            "errors": errors,
        }

    async def _each(self, step: FlowStep, items: Sequence[Any]) -> list[Outcome]:
        """Run the step for all items, some at a time; one that must wait holds up no other."""
        outcomes: list[Outcome] = [SKIPPED] * len(items)
        wishes: list[Suspended] = []
        indexes = iter(range(len(items)))
        kept = 0

        async def work() -> None:
            nonlocal kept
            for index in indexes:
                await trio.lowlevel.checkpoint()  # conditions that never hold must not block others
                scope = {**self._scope, "item": items[index], "index": index}
                try:
                    outcomes[index] = await self._once(step, f"{step.name}[{index}]", scope)
                except Suspended as wish:
                    wishes.append(wish)
                kept = _kept(step, kept, outcomes[index])

        await self._ctx.gather(*(work() for _ in range(min(step.concurrency, len(items)))))
        if wishes:
            raise together(wishes)
        return outcomes

    async def _children(self, step: FlowStep, items: Sequence[Any]) -> list[Outcome]:
        """Run a job for each item: those of one try are children of one step of the record."""
        outcomes: list[Outcome] = [SKIPPED] * len(items)
        calls: dict[int, JobStep] = {}
        for index, item in enumerate(items):
            await trio.lowlevel.checkpoint()
            scope = {**self._scope, "item": item, "index": index}
            key = f"{step.name}[{index}]"
            if is_true(self._filled(step.when, scope, f"step {key!r}: when")):
                given = self._filled(step.with_, scope, f"step {key!r}: with")
                calls[index] = _shaped(step, key, given)
        kept, failures = 0, 0
        while calls:
            failed: dict[int, Failure] = {}
            results = self._mapped(step, _try_key(step, step.name, failures), [*calls.values()])
            for index in calls:
                try:
                    result = await anext(results)
                except ChildFailedError as error:
                    failure = _failure_of(error)
                    if _is_tried_again(step, failure, failures):
                        failed[index] = failure
                    elif step.on_error == "fail":
                        _give_up(step.name, failure, failures, error)
                    else:
                        outcomes[index] = _failed(failure)
                    continue
                outcomes[index] = {"status": "completed", "result": result, "error": None}
                kept = _kept(step, kept, outcomes[index])
            if failed and step.retry is not None:
                failures += 1
                first = next(iter(failed.values()))
                await self._pause(step.retry, step.name, failures, first)
            calls = {index: calls[index] for index in failed}
        return outcomes

    def _mapped(self, step: FlowStep, key: str, calls: Sequence[JobStep]) -> ChildMap[Any]:
        first = calls[0]  # they differ in their arguments alone
        return self._ctx.family.map(
            first.job,
            [each.arguments for each in calls],
            {},
            concurrency=step.concurrency,
            options=first.options(key, self._spec.timeout_s(step)),
        )

    async def _pause(self, retry: StepRetry, key: str, number: int, failure: Failure) -> None:
        """Leave the pod before the next try; an attempt that has done so goes on."""
        if self._ctx.was_recorded(_failure_key(key, number)):
            await self._note(key, number, "")
            return
        pause_s = self._pause_s(retry, number, failure)
        await self._note(key, number, failure.message)
        reason = f"{key} is tried again ({number} of {retry.max})"
        raise Suspended(SLEEP, reason, delay_s=pause_s)

    async def _once(self, step: FlowStep, key: str, scope: Mapping[str, Any]) -> Outcome:
        if not is_true(self._filled(step.when, scope, f"step {key!r}: when")):
            return SKIPPED
        urls = KINDS[step.uses].urls(step.with_)
        given = self._filled(step.with_, scope, f"step {key!r}: with", urls=urls)
        if step.on_error == "continue":
            settle = partial(self._settled, step, f"{key} call", given)
            values = {"uses": step.uses, "with": given}
            outcome: Outcome = await self._ctx.group(key, settle, given=values)
            return outcome
        result = await self._tried(step, key, given)
        return {"status": "completed", "result": result, "error": None}

    async def _settled(self, step: FlowStep, key: str, given: Mapping[str, Any]) -> Outcome:
        """Return the outcome of a step whose failure does not end the flow."""
        began = trio.current_time()
        try:
            result = await self._tried(step, key, given)
        except DivergedError:
            raise
        except Exception as error:  # noqa: BLE001 -- recorded as the step's outcome
            failure = _failure_of(error)
        else:
            return {"status": "completed", "result": result, "error": None}
        await self._report(key, failure, "the flow goes on")
        await self._note_timeout(key, failure, began, recovery="step_failed", action="continued")
        return _failed(failure)

    async def _tried(self, step: FlowStep, key: str, given: Mapping[str, Any]) -> Any:
        """Make a step's call; after a failure that may pass, leave the pod until the next try."""
        if step.retry is None:
            return await self._called(step, key, given)
        failures = 0
        while self._ctx.was_recorded(_failure_key(key, failures + 1)):
            if step.uses == "job":  # how it ended is on record
                with suppress(ChildFailedError):
                    await self._called(step, _try_key(step, key, failures), given)
            failures += 1
            await self._note(key, failures, "")
        began = trio.current_time()
        try:
            return await self._called(step, _try_key(step, key, failures), given)
        except DivergedError:
            raise
        except Exception as error:  # noqa: BLE001 -- raised again, unless another try follows
            failure = _failure_of(error)
            if not _is_tried_again(step, failure, failures):
                _give_up(key, failure, failures, error)
        pause_s = self._pause_s(step.retry, failures + 1, failure)
        await self._note(key, failures + 1, failure.message)
        await self._report(key, failure, f"tried again in {pause_s:.1f} s")
        await self._note_timeout(key, failure, began, recovery="retry_step", action="retry")
        reason = f"{key} is tried again ({failures + 1} of {step.retry.max})"
        raise Suspended(SLEEP, reason, delay_s=pause_s)

    def _pause_s(self, retry: StepRetry, failures: int, failure: Failure) -> float:
        backoff = Backoff(base_s=retry.base_ms / 1000, cap_s=retry.cap_ms / 1000, multiplier=2)
        pause_s = backoff.pause_s(failures, rng=self._ctx.services.rng)
        asked_s = min(failure.retry_after_s or 0.0, RETRY_AFTER_MAX_S)
        return max(pause_s, asked_s, LEAST_PAUSE_S)

    async def _note(self, key: str, number: int, message: str) -> None:
        """Record a failure, or request the record of it."""

        async def keep() -> str:
            return message

        await self._ctx.group(_failure_key(key, number), keep, given={"failure": number})

    async def _report(self, key: str, failure: Failure, resolution: str) -> None:
        caller = await self._ctx.caller(key)
        await self._ctx.services.facts.failed(caller, failure, resolution=resolution)

    async def _note_timeout(
        self, key: str, failure: Failure, began: float, *, recovery: str, action: str
    ) -> None:
        """Add a line to `timeouts.jsonl` if a limit has ended the step and the flow goes on.

        What ends the attempt is noted with its receipt.
        """
        if failure.scope is None:
            return
        limit_s = failure.limit_s
        line = TimeoutLine(
            flow=f"{self._spec.name} v{self._version}",
            job_id=str(self._ctx.job_id),
            attempt=self._ctx.attempt,
            step=key,
            scope=failure.scope,
            limit_ms=None if limit_s is None else round(limit_s * 1000),
            elapsed_ms=round((trio.current_time() - began) * 1000),
            recovery=recovery,
            final_action=action,
            at=(await self._ctx.services.clock.now()).isoformat(),
        )
        try:
            await trio.to_thread.run_sync(append_line, self._ctx.workspace, line)
        except OSError as error:
            _log.warning("timeouts.jsonl not written", job=line.job_id, error=describe(error))

    def _filled(
        self, value: Any, scope: Mapping[str, Any], what: str, *, urls: Collection[Place] = ()
    ) -> Any:
        try:
            return filled(value, scope, urls=urls)
        except ExpressionError as error:
            message = f"flow {self._spec.name!r}: {what}: {error.message}"
            raise InvalidValueError(message, hint=error.hint) from error

    async def _called(self, step: FlowStep, key: str, given: Mapping[str, Any]) -> Any:
        shape = _shaped(step, key, given)
        calls: Mapping[str, Callable[[Any, str, float | None], Awaitable[Any]]] = {
            "tool": partial(self._tool, computed=_computed(step)),
            "agent": self._agent,
            "llm": self._llm,
            "http": self._http,
            "job": self._job,
            "approve": self._approve,
            "publish": self._publish,
        }
        return await calls[step.uses](shape, key, self._spec.timeout_s(step))

    async def _tool(
        self, given: ToolStep, key: str, timeout_s: float | None, *, computed: frozenset[str] | None
    ) -> Any:
        return await self._ctx.tool_as_stored(
            key, given.tool, given.arguments, computed=computed, timeout=timeout_s
        )

    async def _http(self, given: HttpCall, key: str, timeout_s: float | None) -> Any:
        call = attrs.evolve(given, timeout_s=timeout_s)
        return await self._ctx.planned(key, "http_request", call.to_json(), call.plan)

    async def _job(self, given: JobStep, key: str, timeout_s: float | None) -> Any:
        options = given.options(key, timeout_s)
        return await self._ctx.family.call(given.job, given.arguments, options)

    async def _llm(self, given: LlmStep, key: str, timeout_s: float | None) -> Any:
        what = f"step {key!r}"
        request = ModelRequest(
            model=given.model,
            messages=tuple(conversation(given.prompt, given.messages, what=what)),
            system=given.system,
            max_tokens=given.max_tokens,
            options=given.options,
            fallback=tuple(given.fallback),
        )
        generated = await self._ctx.generate(
            key, request, output=given.output, timeout=timeout_s, what=what
        )
        return attrs.asdict(generated)

    async def _approve(self, given: ApproveStep, key: str, _: float | None) -> Any:
        decision = await self._ctx.approve(
            key,
            detail=given.detail,
            risk=given.risk,
            people=given.people,
            expires_s=given.expires_s,
            reason=given.reason,
        )
        return {"by": decision.by, "arguments": dict(decision.arguments)}

    async def _publish(self, given: PublishStep, key: str, _: float | None) -> None:
        await self._ctx.publish(given.topic, given.payload, key=given.key, name=key)

    async def _agent(self, given: AgentStep, key: str, timeout_s: float | None) -> Any:
        """Run an agent in this job, with its own secrets, rules and budgets."""

        async def choose() -> Any:
            agent_id, version = await self._ctx.services.specs.newest_agent(given.agent)
            return [str(agent_id), version]

        chosen = await self._ctx.group(f"{key} agent", choose, given={"agent": given.agent})
        ctx = self._ctx.for_agent(UUID(chosen[0]), chosen[1])
        stored = await ctx.agent_spec() or {}
        await trio.to_thread.run_sync(Secrets.of(stored).register)
        folder = None if given.folder is None else Path(given.folder)
        with trio.CancelScope() as scope:
            if timeout_s is not None:
                scope.deadline = trio.current_time() + timeout_s
            files = await kept_files(ctx, given.files, folder=folder, prefix=f"{key}: ")
            result = await loop.run_agent(
                ctx,
                AgentSpec.from_json(stored),
                files=files,
                prompt=given.prompt,
                folder=folder,
                prefix=f"{key}: ",
            )
            # No tokens: those of a replay would be other ones beside concurrent steps.
            return {"text": result.text, "steps": result.steps, "output": result.output}
        message = f"step {key!r} took longer than {timeout_s:g} seconds"
        raise TimedOutError(message, scope="step", limit_s=timeout_s)


class _SpentError(RejectedError):
    """The tries of a step are spent. Its last failure keeps its class and source: see triage."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = attrs.evolve(failure, is_spent=True, message=message, retry_after_s=None)


def _shaped(step: FlowStep, key: str, given: Mapping[str, Any]) -> Any:
    return structure_discreetly(dict(given), KINDS[step.uses].shape, what=f"step {key!r}: with")


def _failure_of(error: Exception) -> Failure:
    """Return what failed: of a child, its own failure."""
    failure = failure_of(error)
    if isinstance(error, ChildFailedError) and error.error_class is not None:
        failure = attrs.evolve(failure, cls=FailureClass(error.error_class))
    return failure


def _is_tried_again(step: FlowStep, failure: Failure, failures: int) -> bool:
    return step.retry is not None and failure.cls.is_transient and failures < step.retry.max


def _give_up(key: str, failure: Failure, failures: int, error: Exception) -> NoReturn:
    """Raise the error of a step that is not tried again: what failed, or how often it did."""
    if not failure.cls.is_transient or not failures:
        raise error
    message = f"step {key!r} failed {failures + 1} times: {describe(error)}"
    raise _SpentError(failure, message) from error


def _failed(failure: Failure) -> Outcome:
    shown = {"code": failure.code, "message": failure.message}
    return {"status": "failed", "result": None, "error": shown}


def _kept(step: FlowStep, kept: int, outcome: Outcome) -> int:
    """Add the size of a result. Raises `InvalidValueError` beyond what is kept of one step."""
    kept += len(as_json(outcome["result"]))
    if kept > RESULTS_MAX_BYTES:
        raise InvalidValueError(
            f"step {step.name!r}: the results of its items are more than "
            f"{RESULTS_MAX_BYTES:,} bytes",
            hint="keep large data outside, or submit one job for each part",
        )
    return kept


def _try_key(step: FlowStep, key: str, failures: int) -> str:
    """Return the key of a try: how a child ended is on record, so that each has one of its own."""
    return key if step.uses != "job" or not failures else f"{key} try {failures + 1}"


def _computed(step: FlowStep) -> frozenset[str] | None:
    """Return which arguments of a tool's step come from the run's own steps; None: perhaps all.

    The others are those of the flow and its inputs, and may be older than this code.
    """
    arguments = step.with_.get("arguments", {})
    found = {
        str(place[0]) if place else None
        for place, node in expressions(arguments)
        if any(path.root not in STORED for path in paths(node))
    }
    return None if None in found else frozenset(name for name in found if name is not None)


def _failure_key(key: str, number: int) -> str:
    return f"{key} failure {number}"
