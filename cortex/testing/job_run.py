"""One job in memory, from its first attempt to its end: retries and waits included.

A handler runs as it does in a pod, on the journal; the pod's own rules decide what its error does
to the job. Waits are skipped.
"""

import math
import random
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import attrs
import trio
from trio.testing import MockClock

from cortex.agent.tools.toolbox import Toolbox
from cortex.domain.classification import describe
from cortex.domain.errors import MisfitKind, TimedOutError
from cortex.domain.job import Claim, Finish, JobStatus, Lease, Misfit, Operation, Release, Suspend
from cortex.domain.waits import ChildrenWait, SignalWait
from cortex.durable.handling import run_handler
from cortex.durable.job_log import LineBuffer
from cortex.durable.journal import Journal
from cortex.durable.registry import JobType, Registry
from cortex.durable.resources import Resource
from cortex.durable.stray_errors import leave_actor
from cortex.runtime.job_ending import ending_of, out_of_time
from cortex.runtime.open_resources import OpenResources, ResourceError
from cortex.testing.agents import AGENT_ID, VERSION, Agent
from cortex.testing.background import Work
from cortex.testing.budgets import MemoryBudgets
from cortex.testing.clock import Clock, RunClock
from cortex.testing.model import ScriptedModel
from cortex.testing.outcome import StuckError
from cortex.testing.people import People
from cortex.testing.record import JobRecord
from cortex.testing.services import services_of

_ID: Final = re.compile(r'"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"')
ATTEMPTS_MAX: Final = 1_000
"""A job that has not ended by then never does."""


@attrs.define(kw_only=True)
class JobRun:
    """A job, what surrounds it, and how it ended."""

    job_type: JobType[..., Any]
    types: Sequence[JobType[..., Any]]
    """This one, and the others of its modules."""
    agent: Agent | None
    payload: str
    """JSON text."""
    job_id: UUID
    record: JobRecord
    people: People
    scripted: ScriptedModel
    clock: Clock
    resources: Mapping[type, Resource[Any]]
    """The resources to open."""
    replaced: Mapping[type, Any]
    """Open values that the test gives instead of resources."""
    tools: Toolbox
    workspaces: Path
    rng: random.Random
    budgets: MemoryBudgets = attrs.field(factory=MemoryBudgets)
    finds_out: bool = False
    """A person resolves effects without `reconcile` of unknown outcome; else the job is stuck."""
    log: LineBuffer = attrs.field(factory=lambda: LineBuffer(time.monotonic), init=False)
    result: str | None = attrs.field(default=None, init=False)
    """JSON text, once it has completed."""
    error: BaseException | None = attrs.field(default=None, init=False)
    """Why it has failed."""
    ending: Finish | None = attrs.field(default=None, init=False)
    attempts: int = attrs.field(default=0, init=False)
    _stuck: str | None = attrs.field(default=None, init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _journal: Journal | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope | None = attrs.field(default=None, init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)

    @property
    def end(self) -> str:
        """How it has ended, in words for people: the same for two runs but for their ids."""
        if self._stuck is not None:
            return self._stuck
        end = f"returns {self.result}" if self.error is None else f"fails: {describe(self.error)}"
        for each in self.record.ledger.effects:
            end = end.replace(str(each.id), f"(id of effect {each.intent.key})")
        for step in self.record.steps.steps:
            if step.output is not None and _ID.fullmatch(step.output):
                end = end.replace(step.output, f'"(id of {step.key})"')
        return end.replace(str(self.job_id), "(id of the job)")

    @property
    def steps(self) -> list[str]:
        """The keys on record, in the order in which the handler asked for them."""
        requested = () if self._journal is None else self._journal.requested
        places = {key: place for place, key in enumerate(requested)}
        return sorted(self.record.steps.keys, key=lambda key: places.get(key, len(places)))

    @property
    def work(self) -> Work:
        return Work(self.run, self.stop)

    def run(self) -> None:
        """Run the job to its end. Blocks: real time passes only in threads and sockets.

        Raises `StuckError`, and `ResourceError` for a resource that does not open.
        """
        mock = MockClock()
        trio.run(self._main, RunClock(self.clock, mock), clock=mock)

    def stop(self, reason: str) -> None:
        """End the job as one that is stuck, from another thread."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._stop, reason)

    def _stop(self, reason: str) -> None:
        longest = None if self._journal is None else self._journal.progress.longest
        where = "outside of its steps" if longest is None else f"in step {longest[0].key!r}"
        self.stuck(
            f"{reason}: {where} it waits for a thread, a socket or asyncio code, or it loops; give "
            "the step a timeout=, or replace what it waits for"
        )

    def stuck(self, reason: str) -> None:
        """End the job as one that waits for what never comes."""
        self._stuck = self._stuck or reason
        if self._scope is not None:
            self._scope.cancel()

    @property
    def is_stuck(self) -> str | None:
        """Why it has no end, in words for people; None: it has one."""
        return str(self._failure) if self._failure is not None else self._stuck

    async def to_end(self, clock: RunClock) -> None:
        """Run it within the run of another job, whose clock skips its waits, too."""
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._in_own_task, nursery, clock)

    async def _main(self, clock: RunClock) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.skip_waits)
            nursery.start_soon(self._in_own_task, nursery, clock)
        clock.read()
        if self._stuck is not None:
            raise StuckError(f"job {self.job_type.name!r} {self._stuck}")
        if self._failure is not None:
            raise self._failure

    async def _in_own_task(self, nursery: trio.Nursery, clock: RunClock) -> None:
        """Open the resources and run the attempts; a handler may leave nurseries in its task."""
        registry = Registry(self.types)
        registry.resources.declared.update(self.resources)
        opened = OpenResources(registry.resources, nursery, on_failure=lambda: None)
        try:
            with trio.CancelScope() as self._scope:
                await opened.open()
                registry.resources.opened.update(self.replaced)
                await self._attempts(registry, clock)
        except ResourceError as error:
            hint = "give the test a stand-in: cortex.resources[…] = …"
            self._failure = ResourceError(error.message, hint=hint)
            self._failure.__cause__ = error.__cause__
        except Exception as error:  # noqa: BLE001 -- raised outside of the nursery, unwrapped
            self._failure = error
        finally:
            await opened.close()  # noqa: ASYNC102 -- shielded, with a bound
            nursery.cancel_scope.cancel()

    async def _attempts(self, registry: Registry, clock: RunClock) -> None:
        policy = self.job_type.policy
        ends_at = trio.current_time() + policy.timeout_s
        spent, retries, rate_limits, waits = 0, 0, 0, 0
        while self._stuck is None and self.attempts < ATTEMPTS_MAX:
            self.attempts, spent = self.attempts + 1, spent + 1
            done = len(self.record.steps.steps)
            claim = Claim(
                lease=Lease(self.job_id, self.attempts),
                type=self.job_type.name,
                payload=self.payload,
                agent_id=None if self.agent is None else AGENT_ID,
                agent_version=None if self.agent is None else VERSION,
                attempts_spent=spent,
                max_attempts=policy.worker_attempts,
                is_queued=False,
                has_steps=bool(done),
                cancel_requested=False,
                left_s=ends_at - trio.current_time(),
                timeout_s=policy.timeout_s,
                has_open=self.record.has_open,
                retry_count=retries,
                max_retries=policy.max_retries,
                rate_limit_count=rate_limits,
                waits_count=waits,
            )
            match await self._attempt(registry, clock, claim):
                case None:  # killed
                    spent -= 1
                case Finish() as end:
                    self.record.ledger.close(end.status)
                    self.ending = end
                    if (why := await self.record.family.run_detached(clock)) is not None:
                        self.stuck(why)
                    return
                case Release() as end:
                    spent -= not end.is_counted
                    await trio.sleep(end.delay_s)
                case Suspend() as end:
                    spent = 0
                    retries += end.is_counted
                    rate_limits += end.is_rate_limit
                    waits = 0 if len(self.record.steps.steps) > done else waits + 1
                    began = trio.current_time()
                    await self._wait(end, clock)
                    ends_at += trio.current_time() - began
                case Misfit(kind=MisfitKind.STEP) as end:
                    self.stuck(f"does not fit its own record: {end.error}")
                case Misfit() as end:
                    self.stuck(f"would wait for other code: {end.error}")
                case end:
                    raise AssertionError(f"no operation ends an attempt so: {end!r}")
        self.stuck(
            f"has not ended after {ATTEMPTS_MAX} attempts, each of which has waited or failed"
        )

    async def _attempt(self, registry: Registry, clock: RunClock, claim: Claim) -> Operation | None:
        """Run the handler once; None: the attempt was killed."""
        crash = self.record.crash
        attempt = self.record.attempt(claim.lease)
        self._journal = Journal(claim.lease, attempt, self.record.recorded())
        raised: BaseException | None = None
        with trio.CancelScope(deadline=trio.current_time() + claim.left_s) as scope:
            crash.end = scope.cancel
            try:
                services = services_of(
                    attempt,
                    self._journal,
                    policy=self.job_type.policy,
                    agent=self.agent,
                    tools=self.tools,
                    scripted=self.scripted,
                    budgets=self.budgets,
                    clock=clock,
                    resources=registry.resources,
                    workspaces=self.workspaces,
                    rng=self.rng,
                    log=self.log,
                    stuck=self.stuck,
                )
                crash.reach(claim.lease, "before its first step")
                self.result = await run_handler(registry, claim, self._journal, services)
                crash.reach(claim.lease, "after its last step, before its end was recorded")
            except BaseException as error:  # noqa: BLE001, ASYNC103 -- judged below, as a pod does
                raised = await leave_actor(trio.lowlevel.current_task(), error)  # noqa: ASYNC102 -- shielded, with a bound
        if crash.lease == claim.lease or self._stuck is not None:
            return None
        if scope.cancelled_caught:
            limit_s = claim.timeout_s
            message = f"Job timed out after {limit_s} seconds"
            self.error = TimedOutError(message, scope="job", limit_s=limit_s)
            return out_of_time(claim)
        if raised is None:
            return Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=self.result)
        policy, final = self.job_type.policy, self.job_type.final
        ending = ending_of(claim, raised, backoff=policy.backoff, rng=self.rng, final=final)
        self.error = raised if isinstance(ending, Finish) else None
        return ending

    async def _wait(self, wish: Suspend, clock: RunClock) -> None:
        """Let pass what the job waits for."""
        arrives_s = self.record.signals.next_s(wish.waits)
        is_ended_else = wish.delay_s is not None or arrives_s is not None
        if is_ended_else and self._decide(wish, clock, is_needed=False):
            return
        ends_s = math.inf if wish.delay_s is None else wish.delay_s
        if arrives_s is not None:
            ends_s = min(ends_s, max(0.0, arrives_s - trio.current_time()))
        if children := [each for each in wish.waits if isinstance(each, ChildrenWait)]:
            with trio.move_on_after(ends_s):
                await self._run_children(children, clock)
        elif is_ended_else:
            await trio.sleep(ends_s)
        elif wish.requests or wish.awaited or wish.unknown:
            self._decide(wish, clock, is_needed=True)
            self._find_out(wish)
        elif wish.waits:
            sends = ", or ".join(
                f"cortex.signal({each.name!r}, …{_of_key(each.key)})"
                for each in wish.waits
                if isinstance(each, SignalWait)
            )
            self.stuck(f"{wish.error}, which nobody sends: call {sends} before it runs")
        else:
            self.stuck(f"waits for a person: {wish.error}")

    async def _run_children(self, waits: Sequence[ChildrenWait], clock: RunClock) -> None:
        """Run children until those of one wait have ended."""

        async def run(wait: ChildrenWait) -> None:
            why = await self.record.family.run(wait.step, wait.upto, clock)
            if why is not None:
                self.stuck(why)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for each in waits:
                nursery.start_soon(run, each)

    def _decide(self, wish: Suspend, clock: RunClock, *, is_needed: bool) -> bool:
        """Let people answer all questions; return whether there is a new answer.

        `is_needed`: only they end the wait.
        """
        has_answer = False
        for request in wish.requests:
            self.record.ask(request)
        for key, request in self.record.questions.items():
            if key in self.record.decisions:
                continue
            try:
                decision = self.people.decide(request, job_id=self.job_id, at=clock.read())
            except ValueError as error:
                self.stuck(f"waits for an impossible decision: {error}")
                return False
            if decision is None and not is_needed:
                continue
            if decision is None:
                name = request.tool or key
                self.stuck(
                    f"waits for approval {key!r}, and nobody decides: call cortex.approve_all(), "
                    f"cortex.approve({name!r}) or cortex.deny({name!r}) before it runs"
                )
                return False
            self.record.decisions[key] = decision
            has_answer = True
        return has_answer

    def _find_out(self, wish: Suspend) -> None:
        """Let a person look at the other side of effects of unknown outcome."""
        for unknown in wish.unknown:
            self.record.ledger.doubt(unknown)
            intent = self.record.ledger.get(unknown.id).intent
            if self.finds_out and not intent.can_reconcile:
                continue
            way_out = (
                "let its reconcile return Applied or NotApplied"
                if intent.can_reconcile
                else "give it reconcile= or idempotent=True, or let the stand-in raise an error "
                "that says that nothing happened, such as RejectedError"
            )
            self.stuck(
                f"waits for a person who finds out whether effect {intent.key!r} was applied "
                f"({unknown.why}): {way_out}"
            )
            return
        self.record.find_out()


def _of_key(key: str | None) -> str:
    return "" if key is None else f", key={key!r}"
