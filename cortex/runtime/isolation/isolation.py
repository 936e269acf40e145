"""Runs jobs in processes of their own, so that a death identifies the job that caused it.

Owns: the runners that the fork server has forked, idle and at work. A runner executes handler,
tools and effects. What these need of the pod is done here, under the job's own attempt: commits
through the committer, model calls behind their breakers and budgets. A runner is reused while it
behaves. A job whose process has died before gets a fresh one, so that it cannot die of another
job's leftovers.

On failure: a runner that dies while its job runs ends the attempt, and counts against the job.
On stop: a stopped job has `STOP_S` to end, then its process group is killed.
"""

import math
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final, Protocol

import attrs
import structlog
import trio

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import InvalidValueError, UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.job import (
    Claim,
    Finish,
    Misfit,
    Operation,
    Release,
    StepDone,
    StepKind,
    Suspend,
)
from cortex.domain.policy import JobPolicy
from cortex.domain.retry import CallRetry
from cortex.domain.usage import Usage
from cortex.durable.attempt import Services
from cortex.durable.calls import Admission, Caller
from cortex.durable.codec import decode
from cortex.durable.job_log import LineBuffer
from cortex.durable.journal import Recorded
from cortex.durable.progress import (
    PartialAnswer,
    Progress,
    StepUnderWay,
    TimedOut,
    mark_timed_out,
)
from cortex.durable.tally import Tally
from cortex.runtime.commit.committer import Committer
from cortex.runtime.isolation.fork_server import GONE_WITHIN_S, ForkServer, RunnerProcess
from cortex.runtime.isolation.forwarding import ALLOWED, answer
from cortex.runtime.isolation.runner import OUT_OF_MEMORY
from cortex.runtime.isolation.wire import (
    OWN_OF_STEPS,
    WAITING_MAX,
    Channel,
    fields_of,
    plain,
    shaped,
)
from cortex.runtime.logs.relay import received
from cortex.runtime.running import RunningJob, RunningJobs, Stop

STOP_S: Final = 3.0
"""How long a stopped job may take to end by itself, before its process is killed."""
DEATH_PAUSE_S: Final = 0.25
"""Wait before a death is counted: runners and pod may be killed together."""
BEGIN_WITHIN_S: Final = 20.0
"""For a runner to read what it is to run; it waits for nothing else then."""
CHECK_S: Final = 0.25
IDLE_S: Final = 30.0
"""A runner without work for this long is ended."""
JOBS_MAX: Final = 200
"""Jobs after which a runner is replaced: their leftovers end with it."""
ENDINGS: Final[dict[str, type[Operation]]] = {
    each.__name__: each for each in (Finish, Misfit, Release, Suspend)
}

CALLS: Final = frozenset({"begin", "record", "recall", "policy", "call_succeeded", "call_failed"})
"""Calls of a runner besides those of services: see `forwarding.ALLOWED`."""
NOTIFICATIONS: Final = frozenset({"end", "leave", "lines", "step", "opened", "left"}) | {
    *("tool_called", "effect_ended", "approval_decided"),
}

_SIGNALS: Final = {
    **{int(each): f"signal {int(each)} ({each.name})" for each in signal.Signals},
    int(
        signal.SIGKILL
    ): "signal 9 (SIGKILL), sent by the kernel when memory runs out, or by a person",
    int(signal.SIGXCPU): "signal 24 (SIGXCPU): it used more CPU time than isolated_cpu_s allows",
}

_log = structlog.get_logger(__name__)


@attrs.frozen
class RunnerDied:
    """A runner died while its job ran."""

    status: int | None
    """As `waitpid` returns it; None if it is unknown."""
    rss_kb: int
    """The most memory that it held."""

    @property
    def how(self) -> str:
        """How it died, as text for people."""
        held = f"; it used {self.rss_kb // 1024} MiB at most" if self.rss_kb else ""
        return f"{_how(self.status)}{held}"


@attrs.frozen
class AttemptReport:
    """How an attempt ended in its runner."""

    operation: Operation | None
    """None: its lease is lost, or it was stopped."""
    error: BaseException | None
    """Stands for the handler's error, if it raised one."""


class Policies(Protocol):
    """Finds the policy that a job began with."""

    async def policy(self, claim: Claim) -> JobPolicy:
        """Return the job's attempts and time-outs."""


class Isolation:
    """The actor: lends runners to job actors."""

    name = "isolation"

    def __init__(
        self,
        fork_server: ForkServer,
        *,
        slots: int,
        memory_mb: int,
        committer: Committer,
        running: RunningJobs,
    ) -> None:
        self._fork_server = fork_server
        self._slots = slots
        self._grown_kb_max = memory_mb * 1024 // 2
        self._committer = committer
        self._running = running
        self._idle: list[tuple[RunnerProcess, float]] = []
        self._at_work: set[Channel] = set()

    @property
    def slots(self) -> int:
        """Jobs that may run in processes of their own at once; 0 when none can be forked."""
        return 0 if self._fork_server.is_lost else self._slots

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass on when the pod leaves, and end runners that are idle for long."""
        task_status.started()
        try:
            await self._maintain()
        finally:
            for runner, _ in self._idle:
                runner.stream.socket.close()  # this ends it

    async def _maintain(self) -> None:
        was_leaving = False
        while True:
            await trio.sleep(CHECK_S)
            is_leaving = self._running.hands_back()
            if is_leaving is not was_leaving:
                for line in self._at_work:
                    with suppress(trio.WouldBlock, trio.ClosedResourceError):
                        line.send(leaves=is_leaving)
            was_leaving = is_leaving
            expired = trio.current_time() - (0.0 if is_leaving else IDLE_S)
            while self._idle and self._idle[0][1] <= expired:
                await self._fork_server.kill(self._idle.pop(0)[0])

    async def attempt(
        self,
        claim: Claim,
        job: RunningJob,
        tally: Tally,
        recorded: Recorded,
        *,
        services: Services,
        policies: Policies,
    ) -> AttemptReport | RunnerDied:
        """Run one attempt in a runner. Raises `UnavailableError` when there is none.

        On cancellation the job is stopped, and its process is killed after `STOP_S`.
        """
        runner = await self._lend(is_fresh=claim.process_deaths > 0)
        line = Channel(runner.stream)
        hosted = _Hosted(
            claim=claim,
            job=job,
            tally=tally,
            recorded=recorded,
            line=line,
            committer=self._committer,
            services=services,
            policies=policies,
        )
        shield, done = trio.CancelScope(shield=True), trio.Event()

        async def host() -> None:
            with shield:
                await hosted.serve(is_leaving=self._running.hands_back())
            done.set()

        self._at_work.add(line)
        runner.jobs_count += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host)
                try:
                    await done.wait()
                except trio.Cancelled:
                    with suppress(trio.WouldBlock, trio.ClosedResourceError):
                        line.send(stop=True)
                    shield.deadline = trio.current_time() + STOP_S
                    raise
        finally:
            self._at_work.discard(line)
            with trio.CancelScope(shield=True):  # bounded by `kill`
                died = await self._give_back(runner, hosted)
        return died or AttemptReport(hosted.operation, hosted.error)

    async def _lend(self, *, is_fresh: bool) -> RunnerProcess:
        while self._idle and not is_fresh:
            runner, _ = self._idle.pop()
            if not runner.gone.is_set():
                return runner
            runner.stream.socket.close()
        return await self._fork_server.fork()

    async def _give_back(self, runner: RunnerProcess, hosted: "_Hosted") -> RunnerDied | None:
        """Keep a runner that behaves; return how it died if it died by itself."""
        if hosted.has_ended and not hosted.is_broken:
            is_worn = runner.jobs_count >= JOBS_MAX or hosted.grown_kb > self._grown_kb_max
            if is_worn or runner.gone.is_set() or self._running.hands_back():
                await self._fork_server.kill(runner)
            else:
                self._idle.append((runner, trio.current_time()))
            return None
        if not hosted.has_begun and (hosted.is_broken or hosted.is_gone):
            # Killed or stopped before: that counts against no job.
            await self._fork_server.kill(runner)
            raise UnavailableError("a runner ended before its job began")
        if hosted.is_broken:
            await self._fork_server.kill(runner)
            return None if hosted.has_ended else RunnerDied(None, 0)
        if not hosted.is_gone:  # it was stopped, and has not ended in time
            _log.warning("runner killed", job=str(hosted.claim.lease.job_id), ignored_for_s=STOP_S)
            await self._fork_server.kill(runner)
            return None
        with trio.move_on_after(GONE_WITHIN_S):
            await runner.gone.wait()
        await self._fork_server.kill(runner)
        if runner.exit is None:
            raise UnavailableError("the process that forks runners is gone")
        await trio.sleep(DEATH_PAUSE_S)
        return RunnerDied(runner.exit.status, runner.exit.rss_kb)


@attrs.define(kw_only=True, eq=False)
class _Hosted:
    """The pod's side of one attempt in a runner."""

    claim: Claim
    job: RunningJob
    tally: Tally
    recorded: Recorded
    line: Channel
    committer: Committer
    services: Services
    policies: Policies
    has_begun: bool = False
    """The runner has started, and runs the job's code next."""
    has_ended: bool = False
    """The runner has reported how the attempt ended."""
    is_gone: bool = False
    """It has closed its side of the channel."""
    is_broken: bool = False
    """Its messages cannot be understood, or it does not read ours."""
    operation: Operation | None = None
    error: BaseException | None = None
    grown_kb: int = 0
    """By how much its jobs have made the runner larger, at most."""
    _steps: dict[str, StepUnderWay] = attrs.field(factory=dict)
    _calls: dict[int, trio.CancelScope] = attrs.field(factory=dict)
    _admissions: dict[int, tuple[Admission, trio.Event]] = attrs.field(factory=dict)
    _recording: int = 0
    _written: trio.Event = attrs.field(factory=trio.Event)

    @property
    def _progress(self) -> Progress:
        return self.tally.progress

    @property
    def _handed_on(self) -> str | None:
        """The trace for what the job calls in its process, which records no spans itself."""
        trace = self.job.trace
        return self.services.tracing.handed_on(self.claim) if trace is None else str(trace.span)

    async def serve(self, *, is_leaving: bool) -> None:
        """Start the attempt and serve its requests until the runner reports the end, or dies."""
        async with trio.open_nursery() as writing:
            writing.start_soon(self.line.write)
            self.line.send(
                claim=plain(attrs.evolve(self.claim, traceparent=self._handed_on)),
                steps=plain(list(self.recorded.steps)),
                effects=plain(list(self.recorded.effects)),
                past=plain(self.recorded.past),
                is_leaving=is_leaving,
            )
            async with trio.open_nursery() as calls:
                try:
                    await self._hear(calls)
                except Exception as error:  # noqa: BLE001 -- a job that has taken it over may send anything
                    self.is_broken = True
                    _log.error(
                        "runner not understood", job=str(self.claim.lease.job_id), error=error
                    )
                calls.cancel_scope.cancel(reason="the attempt has ended")
            self.line.finish()
            writing.cancel_scope.deadline = trio.current_time() + STOP_S
        self.is_broken = self.is_broken or writing.cancel_scope.cancelled_caught

    async def _hear(self, calls: trio.Nursery) -> None:
        while not self.has_ended:
            with trio.move_on_after(math.inf if self.has_begun else BEGIN_WITHIN_S) as limit:
                message = await self.line.receive()
            if limit.cancelled_caught:
                raise UnavailableError(f"a runner has not begun within {BEGIN_WITHIN_S:g} s")
            if message is None:
                self.is_gone = True
                while self._recording:  # a step still being recorded ends a run of deaths
                    self._written = trio.Event()
                    await self._written.wait()
                return
            self._heard(message, calls)

    def _heard(self, message: dict[str, Any], nursery: trio.Nursery) -> None:
        number = message.get("number")
        if number in self._calls or max(len(self._calls), len(self._steps)) > WAITING_MAX:
            raise InvalidValueError("a runner sends too many requests at once")
        if message.get("call") == "admit":
            scope = self._calls[message["number"]] = trio.CancelScope()
            nursery.start_soon(self._admit, message["number"], scope, message["given"]["name"])
        elif "call" in message:
            work = self._work(message["call"], message["given"])
            scope = self._calls[message["number"]] = trio.CancelScope()
            nursery.start_soon(self._answer, message["number"], scope, work)
        elif "drop" in message:
            if message["drop"] in self._calls:
                self._calls[message["drop"]].cancel(reason="the job does not wait for it")
        elif message["notify"] in NOTIFICATIONS:
            getattr(self, f"_on_{message['notify']}")(**message.get("given", {}))
        else:
            raise InvalidValueError(f"a runner sends {message['notify']!r:.40}")

    def _work(self, call: str, given: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        if call in ALLOWED:
            return partial(answer, self.services, self.claim, call, given, caller=self._caller)
        if call in CALLS:
            return partial(getattr(self, f"_do_{call}"), **given)
        raise InvalidValueError(f"a runner calls {call!r:.40}")

    async def _answer(
        self, number: int, scope: trio.CancelScope, work: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            with scope:
                await self.line.reply(number, work)
        finally:
            del self._calls[number]

    async def _admit(self, number: int, scope: trio.CancelScope, name: str) -> None:
        """Enter a breaker, and stay in it until the runner reports that it has left."""
        try:
            with scope:
                async with AsyncExitStack() as stack:
                    left = trio.Event()

                    async def enter() -> int:
                        breaker = self.services.breakers.admit(name)
                        admission = await stack.enter_async_context(breaker)
                        self._admissions[number] = admission, left
                        return number

                    await self.line.reply(number, enter)
                    if number in self._admissions:
                        await left.wait()
        finally:
            self._admissions.pop(number, None)
            del self._calls[number]

    # --- notifications of a runner

    def _on_end(
        self,
        *,
        name: str | None,
        end: Any,
        grown_kb: int,
        failure: Any = None,
        timed_out: Any = None,
    ) -> None:
        self.grown_kb = grown_kb
        if name is not None:
            # Whatever it reports, it ends its own attempt and no other one.
            self.operation = shaped({**end, "lease": plain(self.claim.lease)}, ENDINGS[name])
            self.error = _error(failure, timed_out, self._steps)
        self.has_ended = True

    def _on_leave(self) -> None:
        self.job.end(Stop.HANDED_BACK)

    def _on_step(self, *, what: str, kind: str, key: str) -> None:
        if what == "begun":
            now = trio.current_time()
            self._steps[key] = self._progress.begin(StepKind(kind), key, now=now)
            return
        step = self._progress.under_way(key)
        if step is not None:
            ends = {"done": self._progress.end, "cut": self._progress.cut}
            ends.get(what, self._progress.failed)(step)

    def _on_lines(self, *, lines: list[Any], dropped: dict[str, Any], late: int) -> None:
        if isinstance(self.services.log, LineBuffer):
            received(self.services.log, self.claim, lines=lines, dropped=dropped, late=late)

    def _on_opened(self, *, admission: int, idle_s: float) -> None:
        if admission in self._admissions:
            self._admissions[admission][0].opened(idle_s=idle_s)

    def _on_left(self, *, admission: int) -> None:
        if admission in self._admissions:
            self._admissions[admission][1].set()

    def _on_tool_called(self, *, tool: str, outcome: str, seconds: float) -> None:
        self.services.meter.tool_called(tool, outcome, seconds=seconds)

    def _on_effect_ended(self, *, tool: str, outcome: str) -> None:
        self.services.meter.effect_ended(tool, outcome)

    def _on_approval_decided(self, *, decision: str, waited_s: float) -> None:
        self.services.meter.approval_decided(ApprovalStatus(decision), waited_s=waited_s)

    # --- requests of a runner

    async def _do_record(self, *, operation: Any, is_ahead: bool = False) -> None:
        usage = operation.get("usage")
        spent = None if usage is None else shaped(decode(usage), Usage)
        at, lease = trio.current_time(), self.claim.lease
        given = fields_of(operation, StepDone, without=("lease", *OWN_OF_STEPS))
        done = StepDone(lease=lease, spent=spent, ended_at=at, tally=self.tally, **given)
        self._recording += 1
        try:
            await (self.committer.send_ahead if is_ahead else self.committer.record)(done)
            if self.job.trace is not None:
                self.job.trace.stepped(done, at - done.duration_s)
        finally:
            self._recording -= 1
            self._written.set()

    async def _do_begin(self) -> None:
        self.has_begun = True

    async def _do_recall(self, *, key: str) -> str | None:
        recall = self.recorded.recall
        return None if recall is None else await recall(key)

    async def _do_policy(self) -> Any:
        return plain(await self.policies.policy(self.claim))

    async def _do_call_succeeded(self, *, admission: int) -> None:
        await self._admissions[admission][0].succeeded()

    async def _do_call_failed(self, *, admission: int, failure: Any) -> None:
        await self._admissions[admission][0].failed(shaped(failure, Failure))

    async def _caller(self, terms: Any) -> Caller:
        """Return a caller of this job, whatever the runner claims to be."""
        claim, key = self.claim, terms["key"]
        limits = await self.services.policies.limits(claim)
        step = self._progress.under_way(key)
        return Caller(
            lease=claim.lease,
            lineage_id=claim.lineage_id or claim.lease.job_id,
            tenant=claim.tenant,
            agent_id=claim.agent_id,
            agent_version=claim.agent_version,
            config_id=claim.config_id,
            key=key,
            prices=limits.prices,
            call_s=terms["call_s"],
            idle_s=terms["idle_s"],
            connect_s=terms["connect_s"],
            retry=shaped(terms["retry"], CallRetry),
            answer=PartialAnswer() if step is None else step.answer,
            trace=self.job.trace,
        )


def _how(status: int | None) -> str:
    if status is None:
        return "its connection broke"
    code = os.waitstatus_to_exitcode(status)
    if code == OUT_OF_MEMORY:
        return "it asked for more memory than isolated_mb allows"
    if code >= 0:
        return f"it ended itself with exit code {code}"
    return f"it was killed by {_SIGNALS.get(-code, f'signal {-code}')}"


def _error(failure: Any, timed_out: Any, steps: dict[str, StepUnderWay]) -> BaseException:
    """Return a stand-in for the handler's error, from which a time-out's receipt is taken."""
    error: BaseException
    if failure is None:
        error = Suspended("", "", delay_s=None)
    else:
        error = ReportedError()
        error.failure = shaped(failure, Failure)
    if timed_out is not None and timed_out["key"] in steps:
        terms = TimedOut(steps[timed_out["key"]], shaped(timed_out["failure"], Failure))
        mark_timed_out(error, terms)
    return error


class ReportedError(Exception):
    """Stands for an error that a handler raised in its runner; `failure` is its classification."""

    failure: Failure
