"""The process in which one job at a time runs beside its pod: handler, tools and effects.

It has no connection of its own. What a `Context` needs of the pod (the record, models, breakers,
people's decisions) it requests over its channel; see `isolation` for the pod's side.
"""

import os
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import trio

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.classification import failure_of, leaves
from cortex.domain.clock import Chance, system_chance
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.failure import Failure
from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    Lease,
    Misfit,
    OpenEffect,
    Operation,
    Past,
    Step,
    StepDone,
)
from cortex.domain.policy import JobPolicy
from cortex.durable.attempt import Services, Tools
from cortex.durable.calls import Admission, Unmetered
from cortex.durable.codec import encode
from cortex.durable.handling import run_handler
from cortex.durable.heavy_values import scarce
from cortex.durable.journal import Journal, LeaveRequest, Recorded
from cortex.durable.progress import StepUnderWay, timed_out_by
from cortex.durable.registry import Registry
from cortex.durable.stray_errors import close_nurseries, leave_actor
from cortex.runtime.interpreter_hooks import hooked
from cortex.runtime.isolation.descendants import end_children
from cortex.runtime.isolation.fork_server import limit_cpu
from cortex.runtime.isolation.forwarding import remote
from cortex.runtime.isolation.wire import Channel, plain, shaped
from cortex.runtime.job_ending import ending_of, not_judged
from cortex.runtime.logs.capture import captured
from cortex.runtime.logs.relay import LineSender
from cortex.runtime.open_resources import OpenResources

T = TypeVar("T")
AHEAD_S: Final = 5.0
"""How long after a cancellation a step is waited for that is recorded before others."""
OUT_OF_MEMORY: Final = 86
"""Exit code of a runner whose job requested more memory than it may use."""


@attrs.frozen(kw_only=True)
class RunnerParts:
    """The parts that a runner shares with its pod."""

    registry: Registry
    tools: Tools
    workspaces: Path
    cpu_s: int

    def warm(self) -> None:
        """Build in advance what every runner needs for its first job: 25 ms of CPU time."""
        lease = Lease(system_chance().new_id(), 1)
        claim = Claim(
            lease=lease,
            type="",
            payload="{}",
            agent_id=None,
            agent_version=None,
            attempts_spent=1,
            max_attempts=1,
            is_queued=False,
            has_steps=False,
            cancel_requested=False,
            left_s=1.0,
            timeout_s=1,
        )
        shaped(plain(claim), Claim)
        shaped([], list[Step])
        shaped([], list[OpenEffect])
        shaped(plain(Past()), Past)
        plain(Finish(lease=lease, status=JobStatus.COMPLETED))
        encode({}, what="result")
        trio.run(trio.lowlevel.checkpoint)

    def run(self, connection: socket.socket) -> None:
        """Run jobs until the pod closes the connection."""
        scarce.memory = True
        trio.run(_Runner(self, system_chance()).run, connection)


class _Runner:
    def __init__(self, parts: RunnerParts, chance: Chance) -> None:
        self._parts = parts
        self._chance = chance
        self._scope = trio.CancelScope()
        self._is_leaving = False
        self._running_count = 0
        self._most_kb = _most_held_kb()  # at first what it inherits from the process that forked it

    async def run(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 -- as the library has it
        line = Channel(trio.SocketStream(trio.socket.from_stdlib_socket(connection)))
        with hooked(), captured():
            await self._serve(line)

    async def _serve(self, line: Channel) -> None:
        self._lines = LineSender(
            lambda given: line.send(notify="lines", given=given), lambda: line.is_congested
        )
        async with trio.open_nursery() as nursery:
            self._resources = OpenResources(
                self._parts.registry.resources, nursery, on_failure=lambda: None
            )
            nursery.start_soon(line.write)
            nursery.start_soon(self._lines.run)
            while (message := await line.receive()) is not None:
                if "reply" in message:
                    line.answered(message)
                elif "stop" in message:
                    self._scope.cancel(reason="the pod stops the job")
                elif "leaves" in message:
                    self._is_leaving = message["leaves"]
                else:
                    self._scope = trio.CancelScope()
                    self._is_leaving = message["is_leaving"]
                    nursery.start_soon(self._attempt, line, message)
            # Without its pod nothing may go on, whatever a job shields.
            if self._running_count == 0:
                await self._resources.close()
            os._exit(0)

    async def _attempt(self, line: Channel, message: dict[str, Any]) -> None:
        """Run one attempt and report how it ended."""
        limit_cpu(self._parts.cpu_s)
        self._running_count += 1
        claim = shaped(message["claim"], Claim)
        self._lines.begin(claim.lease)
        raised: BaseException | None = None
        result = ""
        try:
            with self._scope:
                await self._resources.open_again()
                # From here on a death is the job's; before, none of its code has run.
                await line.call("begin")
                result = await self._handle(line, claim, message)
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- as in the pod itself
            raised = await leave_actor(trio.lowlevel.current_task(), error)  # noqa: ASYNC102 -- shielded, with a bound
        await close_nurseries(trio.lowlevel.current_task())
        if raised is None:
            ending = Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=result)
            self.send_end(line, None if self._scope.cancelled_caught else ending)
            return
        await self._failed(line, claim, raised)

    async def _handle(self, line: Channel, claim: Claim, message: dict[str, Any]) -> str:
        record, pod = _Steps(line), partial(remote, line=line)
        recorded = Recorded(
            steps=shaped(message["steps"], list[Step]),
            effects=shaped(message["effects"], list[OpenEffect]),
            past=shaped(message["past"], Past),
            recall=record.recall,
        )
        leave = LeaveRequest(
            is_asked=lambda: self._is_leaving, hand_back=lambda: line.send(notify="leave")
        )
        journal = Journal(claim.lease, record, recorded, leave=leave)
        journal.progress.on_step = record.on_step
        services = Services(
            models=pod("models"),
            tools=self._parts.tools,
            files=pod("files"),
            specs=pod("specs"),
            policies=pod("policies", known_limits=lambda _: None),
            breakers=_Breakers(line),
            facts=pod("facts"),
            gateway=pod("gateway", new_id=self._chance.new_id),
            clock=pod("clock"),
            bulk=pod("bulk"),
            upkeep=pod("upkeep"),
            channels=pod("channels"),
            signals=pod("signals"),
            arrivals=pod("arrivals"),
            callbacks=pod("callbacks"),
            publisher=pod("publisher"),
            children=pod("children"),
            workspaces=self._parts.workspaces,
            rng=self._chance.rng,
            meter=_Meter(line),
            resources=self._parts.registry.resources,
            log=self._lines.buffer,
        )
        return await run_handler(self._parts.registry, claim, journal, services)

    async def _failed(self, line: Channel, claim: Claim, error: BaseException) -> None:
        errors = leaves(error)
        if any(isinstance(leaf, MemoryError) for leaf in errors):
            os._exit(OUT_OF_MEMORY)  # nothing can be trusted to work any more
        policy = shaped(await line.call("policy"), JobPolicy)
        try:
            ending = ending_of(
                claim,
                error,
                backoff=policy.backoff,
                rng=self._chance.rng,
                final=self._parts.registry.final(claim.type),
            )
        except BaseException as second:  # noqa: BLE001, ASYNC103 -- it runs code of the job's own error
            ending = not_judged(claim, error, second)
        if any(isinstance(leaf, LeaseLost) for leaf in errors):
            self.send_end(line, None)
            return
        timed_out = next(filter(None, map(timed_out_by, errors)), None)
        is_failure = not isinstance(ending, Misfit)
        failures = [leaf for leaf in errors if is_failure and not isinstance(leaf, Suspended)]
        self.send_end(
            line,
            ending,
            failure=plain(failure_of(error)) if failures else None,
            timed_out=None
            if timed_out is None
            else {"key": timed_out.step.key, "failure": plain(timed_out.failure)},
        )

    def send_end(self, line: Channel, ending: Operation | None, **details: Any) -> None:
        end_children()  # the programs that the job has started end with it
        self._lines.finish()
        self._running_count -= 1
        name = None if ending is None else type(ending).__name__
        grown_kb = _most_held_kb() - self._most_kb
        operation = None if ending is None else plain(ending)
        line.send(
            notify="end", given={"name": name, "end": operation, "grown_kb": grown_kb, **details}
        )


class _Steps:
    """The record of the job's steps, which its pod keeps."""

    def __init__(self, line: Channel) -> None:
        self._line = line

    def on_step(self, what: str, step: StepUnderWay) -> None:
        """Report a change of a step to the pod: see `Progress.on_step`."""
        self._line.send(
            notify="step", given={"what": what, "kind": step.kind.value, "key": step.key}
        )

    async def record(self, operation: StepDone) -> None:
        await self._line.call("record", operation=plain(operation))
        _count(operation)

    async def send_ahead(self, operation: StepDone) -> None:
        """Wait until the pod has taken the step, which it commits before anything that comes later.

        However long the database is away, and up to `AHEAD_S` after a cancellation.
        """
        scope = trio.CancelScope(shield=True)

        async def until_cancelled() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:  # noqa: ASYNC103 -- a step that is sent must not seem to be kept
                scope.deadline = trio.current_time() + AHEAD_S

        error: BaseException | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_cancelled)
            with scope:
                try:
                    await self._line.call("record", operation=plain(operation), is_ahead=True)
                    _count(operation)
                except (Exception, LeaseLost) as caught:  # noqa: BLE001 -- raised below
                    error = caught
            nursery.cancel_scope.cancel(reason="the step is sent")
        if error is not None:
            raise error
        if scope.cancelled_caught:
            await trio.lowlevel.checkpoint_if_cancelled()

    async def recall(self, key: str) -> str | None:
        kept: str | None = await self._line.call("recall", key=key)
        return kept


@attrs.frozen
class _Breakers:
    """The circuit breakers of the pod."""

    line: Channel

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncIterator[Admission]:
        admission = _Admission(self.line, await self.line.call("admit", name=name))
        try:
            yield admission
        finally:
            self.line.send(notify="left", given={"admission": admission.id})


@attrs.frozen
class _Admission:
    line: Channel
    id: int

    def opened(self, *, idle_s: float) -> None:
        self.line.send(notify="opened", given={"admission": self.id, "idle_s": idle_s})

    async def succeeded(self) -> None:
        await self.line.call("call_succeeded", admission=self.id)

    async def failed(self, failure: Failure) -> None:
        await self.line.call("call_failed", admission=self.id, failure=plain(failure))


class _Meter(Unmetered):
    """Has the pod measure what its jobs do here."""

    def __init__(self, line: Channel) -> None:
        self._line = line

    def tool_called(self, tool: str, outcome: str, *, seconds: float) -> None:
        given = {"tool": tool, "outcome": outcome, "seconds": seconds}
        self._line.send(notify="tool_called", given=given)

    def effect_ended(self, tool: str, outcome: str) -> None:
        self._line.send(notify="effect_ended", given={"tool": tool, "outcome": outcome})

    def approval_decided(self, decision: ApprovalStatus, *, waited_s: float) -> None:
        given = {"decision": decision.value, "waited_s": waited_s}
        self._line.send(notify="approval_decided", given=given)


def _count(operation: StepDone) -> None:
    """Count a step that the pod has taken: it is numbered there."""
    operation.tally.number(operation)
    operation.tally.committed(operation)


def _most_held_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
