"""One actor per running attempt: job scope around the handler, then one operation that ends it.

Owns: its `RunningJob` entry and the context of the attempt. Holds no connection while it runs.

On failure of the handler: the class of the error decides (see `job_ending`): the worker layer or
the application layer tries again, or the job is suspended, or it fails.
On stop: a cancelled job ends as CANCELLED; a pod that shuts down hands the job back uncounted;
after a lost lease nothing more is written. No error of a handler leaves this actor.

The end of a job that completes is posted: its slot is free at once, and the actor takes the next
job. Every other end is waited for.

A job's own limit is hard: after the deadline it is a time-out, whatever its handler returns or
raises. A limit that ends an attempt leaves its receipt first, see `receipts`.
"""

import random
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.backoff import retry_while_unavailable
from cortex.domain.classification import describe, leaves
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import CortexError, UnavailableError
from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    Lease,
    Misfit,
    Operation,
    Release,
)
from cortex.domain.policy import JobPolicy
from cortex.domain.redaction import clean_text
from cortex.durable.attempt import Services
from cortex.durable.handling import run_handler
from cortex.durable.journal import NOTHING_RECORDED, Journal, LeaveRequest, Recorded
from cortex.durable.registry import Registry
from cortex.durable.step_scope import StepScope
from cortex.durable.stray_errors import close_nurseries, leave_actor
from cortex.durable.tally import Tally
from cortex.postgres.bridge import Port, leave_island
from cortex.runtime.commit.committer import Committer, CommitterStopped
from cortex.runtime.isolation.isolation import AttemptReport, Isolation, RunnerDied
from cortex.runtime.job_ending import ending_of, not_judged, out_of_time, process_died
from cortex.runtime.jobs.idle_actors import IdleActors
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.running import RunningJob, RunningJobs, Stop
from cortex.store import steps

NO_PROCESS_PAUSE_S: Final = 1.0
"""Delay before a job is due again for which no process could be forked."""

_log = structlog.get_logger(__name__)


class Policies(Protocol):
    """Finds the policy that a job began with, once the database is available."""

    async def policy(self, claim: Claim) -> JobPolicy:
        """Return the job's attempts and time-outs."""


@attrs.frozen
class Ran:
    """How a handler ended: its result as JSON, or its error, or neither if it was cut."""

    result: str | None
    raised: BaseException | None
    is_cut: bool = attrs.field(kw_only=True)


@attrs.frozen(kw_only=True)
class JobActors:
    """Makes and runs the actors of a pod's jobs."""

    port: Port
    committer: Committer
    registry: Registry
    services: Services
    policies: Policies
    receipts: Receipts
    running: RunningJobs
    rng: random.Random
    deaths_max: int = 3
    """Consecutive deaths of its own process after which a job fails."""
    isolation: Isolation | None = None
    """None: the pod of a test or a simulation, which runs every job itself."""
    metrics: Metrics = attrs.field(factory=Metrics)
    idle: IdleActors = attrs.field(factory=IdleActors)
    _is_leaving: Callable[[], bool] = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: self.running.hands_back, takes_self=True),
    )
    """One for all jobs."""

    @property
    def isolated_slots(self) -> int:
        """How many jobs may run in processes of their own at once."""
        return self.running.slots if self.isolation is None else self.isolation.slots

    def isolates(self, claim: Claim) -> bool:
        """Return whether a job runs in a process of its own."""
        is_asked = claim.is_suspect or self.registry.is_isolated(claim.type)
        return is_asked and self.isolation is not None

    def start(self, nursery: trio.Nursery, claim: Claim, job: RunningJob) -> None:
        """Run an attempt in an actor that waits for one, or else in a new one."""
        if not self.idle.wake(claim, job):
            nursery.start_soon(self.run, claim, job)

    async def run(self, claim: Claim, job: RunningJob) -> None:
        """Run one attempt to its end and report it, then those that `start` gives to this actor.

        Attempts that complete share one cancel scope, whose making costs as much as all else of a
        small job. Any other end leaves it, and ends this actor. Raises nothing but
        `trio.Cancelled`.
        """
        attempt: tuple[Claim, RunningJob] | None = claim, job
        del claim, job  # an actor that waits keeps nothing of its last job
        result: str | None = None
        raised: BaseException | None = None
        has_run = False
        leave_island()
        task, context = trio.lowlevel.current_task(), copy_context()
        scope = trio.CancelScope()
        try:
            try:
                with scope:
                    step_scope = StepScope(task, self.running)
                    try:
                        while attempt is not None and _may_run(*attempt):
                            claim, job = attempt
                            job.task, job.scope, job.step_scope = task, scope, step_scope
                            has_run = True
                            result = await self._handle(claim, job)
                            is_late = trio.current_time() >= job.deadline
                            # Job code can leave a scope entered: an abandoned generator does.
                            if scope.cancel_called or is_late or not step_scope.is_innermost:
                                break
                            job.task = job.scope = job.step_scope = None
                            await self._post(claim, job, result)
                            attempt, result, has_run = None, None, False
                            del claim, job
                            attempt = await self.idle.wait(context)
                    finally:
                        step_scope.close()
            except BaseException as error:  # noqa: BLE001, ASYNC103 -- no error of a job ends its pod
                # Job code raises what it likes: only a cancellation by the pod goes on from here.
                raised = await leave_actor(task, error)  # noqa: ASYNC102 -- shielded, with a bound
            await close_nurseries(task)
            if attempt is not None and attempt[1].is_abandoned:
                attempt = None
            if attempt is not None:
                claim, job = attempt
                job.task = job.scope = job.step_scope = None
                ran = Ran(result, raised, is_cut=scope.cancelled_caught) if has_run else None
                await self._conclude(claim, job, ran)
        except trio.Cancelled:
            self.running.give_up_posted()
            raise
        finally:
            if attempt is not None and not attempt[1].is_abandoned:
                claim, job = attempt
                job.task = job.scope = job.step_scope = None
                self._forget(claim, job)

    def abandon(self, nursery: trio.Nursery, job: RunningJob) -> None:
        """End an attempt without its handler, whose code ignores its cancellation.

        What that code still calls through its context is refused: another attempt may own the job.
        """
        if job.claim is not None:
            job.is_abandoned = True
            job.task = job.scope = job.step_scope = None
            nursery.start_soon(self._conclude_abandoned, job.claim, job)

    async def _conclude_abandoned(self, claim: Claim, job: RunningJob) -> None:
        try:
            await self._conclude(claim, job, Ran(None, None, is_cut=True))
        finally:
            self._forget(claim, job)

    async def _post(self, claim: Claim, job: RunningJob, result: str) -> None:
        """Pass a completed job to the committer, whose answer this actor does not wait for."""
        ending = Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=result)
        end = PostedEnd(self, claim, job, ending)
        try:
            await self.committer.post(ending, end)
        except LeaseLost as lost:
            end.fail(lost)
        else:
            self.running.posted(job)

    async def _conclude(self, claim: Claim, job: RunningJob, ran: "Ran | None") -> None:
        """Record the end of an attempt that did not simply complete."""
        try:
            ending = await self._ending(claim, job, ran)
        except Exception as error:  # noqa: BLE001 -- a fault of ours ends the job, not the pod
            raised = error if ran is None or ran.raised is None else ran.raised
            ending = not_judged(claim, raised, error)
        if ending is None or job.stop is Stop.LEASE_LOST:
            job.is_answered = True  # by the attempt that owns it
            if job.trace is not None:
                job.trace.ended(None, job.claimed_at, trio.current_time())
            return
        recorded = await self._report(ending)
        self._ended(claim, job, recorded)
        await self.receipts.offer_again(claim.lease)

    def _ended(self, claim: Claim, job: RunningJob, recorded: Operation | None) -> None:
        """The end of an attempt is in the record, or None: another attempt owns the job."""
        job.is_recorded, job.is_answered = recorded is not None, True
        now = trio.current_time()
        self.metrics.ended(claim, recorded, ran_s=now - job.claimed_at)
        if job.trace is not None:
            job.trace.ended(recorded, job.claimed_at, now)

    def _forget(self, claim: Claim, job: RunningJob) -> None:
        self.receipts.forget(claim.lease)
        self.running.remove(job)

    async def _ending(self, claim: Claim, job: RunningJob, ran: "Ran | None") -> Operation | None:
        """Return the operation that ends the attempt, or None for a lost lease.

        `ran` is None if its handler has not begun: no code of a late claim runs on a pod that
        shuts down, and a job whose time is over might compute on without an `await`.
        """
        if ran is not None:
            return await self._judged(claim, job, ran)
        if job.stop is not None:
            return _stopped(claim, job.stop)
        if claim.cancel_requested:
            return Finish(lease=claim.lease, status=JobStatus.CANCELLED)
        if self.isolation is None or not job.is_isolated or claim.left_s <= 0:
            return await self._out_of_time(claim, job, None)
        return await self._isolated(self.isolation, claim, job)

    async def _judged(self, claim: Claim, job: RunningJob, ran: "Ran") -> Operation | None:
        """Return the operation that ends an attempt whose handler has ended; as `_ending`."""
        if ran.is_cut or trio.current_time() >= job.deadline:
            return await self._out_of_time(claim, job, ran.raised)
        if ran.raised is not None:
            return await self._failed(claim, job, ran.raised)
        return Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=ran.result)

    async def _isolated(
        self, isolation: Isolation, claim: Claim, job: RunningJob
    ) -> Operation | None:
        """Run the handler in a process of its own; return as `_ending` does."""
        ended: AttemptReport | RunnerDied | None = None
        tally = Tally(())
        scope = trio.CancelScope(deadline=job.deadline)
        try:
            with scope:
                job.scope = scope
                recorded = await self._recorded(claim)
                tally = Tally(recorded.steps)
                job.progress = tally.progress
                job.trace = self.services.tracing.begin(claim)
                self.receipts.follow(claim, tally.progress)
                ended = await isolation.attempt(
                    claim,
                    job,
                    tally,
                    recorded,
                    services=self.services,
                    policies=self.policies,
                )
        except UnavailableError as error:
            _log.error("no process for job", job=str(claim.lease.job_id), error=error.message)
            return _stopped(claim, job.stop) if job.stop else _put_off(claim)
        except Exception as error:  # noqa: BLE001 -- a runner's data must not end its pod
            return await self._failed(claim, job, error)
        is_late = scope.cancelled_caught or trio.current_time() >= job.deadline
        if ended is None or is_late:
            return await self._out_of_time(claim, job, None)
        if isinstance(ended, RunnerDied):
            return self._died(claim, job, tally, ended)
        operation = ended.operation
        is_completed = isinstance(operation, Finish) and operation.status is JobStatus.COMPLETED
        if job.stop is not None and not is_completed:
            return _stopped(claim, job.stop)
        if operation is not None and ended.error is not None:
            await self.receipts.ended(claim, job, operation, ended.error)
        return operation

    def _died(
        self, claim: Claim, job: RunningJob, tally: Tally, died: RunnerDied
    ) -> Operation | None:
        """If the job or the pod was stopped, that may have ended the process: it is not counted."""
        if job.stop is not None or self.running.hands_back():
            return _stopped(claim, job.stop or Stop.HANDED_BACK)
        _log.warning("runner died", job=str(claim.lease.job_id), type=claim.type, how=died.how)
        has_stepped = tally.progress.checkpoint_at is not None
        return process_died(claim, died.how, has_stepped=has_stepped, deaths_max=self.deaths_max)

    async def _failed(
        self, claim: Claim, job: RunningJob, error: BaseException
    ) -> Operation | None:
        if job.stop is not None:
            return _stopped(claim, job.stop)
        policy = await self.policies.policy(claim)
        try:
            ending = ending_of(
                claim,
                error,
                backoff=policy.backoff,
                rng=self.rng,
                final=self.registry.final(claim.type),
            )
        except BaseException as second:  # noqa: BLE001, ASYNC103 -- it runs code of the job's own error
            ending = not_judged(claim, error, second)
        if ending is not None and not isinstance(ending, Misfit):
            await self.receipts.ended(claim, job, ending, error)
        return ending

    async def _out_of_time(
        self, claim: Claim, job: RunningJob, raised: BaseException | None
    ) -> Operation | None:
        """Return the end of an attempt whose scope was cancelled, or whose deadline has passed."""
        if job.stop is not None:
            return _stopped(claim, job.stop)
        if raised is not None:
            if any(isinstance(leaf, LeaseLost) for leaf in leaves(raised)):
                return None
            lease = claim.lease
            _log.info(
                "handler raised after its deadline", job=str(lease.job_id), error=describe(raised)
            )
        ending = out_of_time(claim)
        await self.receipts.ended(claim, job, ending, None)
        return ending

    def _handle(self, claim: Claim, job: RunningJob) -> Coroutine[Any, Any, str]:
        """Return the run of a handler; of a new job without a frame of its own."""
        if claim.has_steps or claim.has_open:
            return self._resumed(claim, job)
        return self._begun(claim, job, NOTHING_RECORDED)

    async def _resumed(self, claim: Claim, job: RunningJob) -> str:
        return await self._begun(claim, job, await self._recorded(claim))

    def _begun(self, claim: Claim, job: RunningJob, recorded: Recorded) -> Coroutine[Any, Any, str]:
        leave = LeaveRequest(is_asked=self._is_leaving, hand_back=job.hand_back)
        journal = Journal(
            claim.lease, self.committer, recorded, leave=leave, step_scope=job.step_scope
        )
        job.progress = journal.progress
        journal.trace = job.trace = self.services.tracing.begin(claim)
        self.receipts.follow(claim, journal.progress)
        return run_handler(self.registry, claim, journal, self.services)

    async def _recorded(self, claim: Claim) -> Recorded:
        job_id = claim.lease.job_id
        goes_on = claim.lineage_id is not None and claim.has_steps
        answered = partial(
            retry_while_unavailable, log=_log, event="steps not loaded", rng=self.rng
        )
        if not (claim.has_steps or claim.has_open):
            return NOTHING_RECORDED
        record = await answered(
            lambda: self.port(
                steps.record_of,
                job_id,
                lineage_id=claim.lineage_id or job_id,
                of_line=goes_on,
                has_steps=claim.has_steps,
                has_open=claim.has_open,
            )
        )
        return Recorded(
            steps=record.steps,
            effects=record.effects,
            past=record.past,
            recall=partial(self._recall, job_id),
        )

    async def _recall(self, job_id: UUID, key: str) -> str | None:
        """Return the recorded input of a step; None at once if it is unavailable."""
        try:
            return await self.port(steps.input_of, job_id, key)
        except UnavailableError:
            return None

    async def _report(self, ending: Operation) -> Operation | None:
        """Commit the end of the attempt; only the end of the pod's drain cuts it off.

        Returns what is in the record, None if another attempt owns the job.
        """
        try:
            await self.committer.record(ending)
            return ending
        except LeaseLost:
            _log_lost(ending.lease)
            return None
        except CortexError as error:
            return await self._report_refusal(_refused(ending, error))
        except Exception as error:  # noqa: BLE001 -- a fault of ours: the sweep ends the job
            self._not_recorded(ending.lease, error)
            return None

    async def _report_refusal(self, refused: Finish) -> Operation | None:
        try:
            await self.committer.record(refused)
            return refused
        except LeaseLost:
            _log_lost(refused.lease)
        except CortexError as second:
            self._not_recorded(refused.lease, second)
        return None

    def _not_recorded(self, lease: Lease, error: Exception) -> None:
        # Its heartbeat ends with this actor, so the sweep will find it.
        self.running.unrecorded.append(lease.job_id)
        _log.error("end of attempt not recorded", job=str(lease.job_id), error=error)


class PostedEnd:
    """Takes the committer's answer to the end of a job for which no actor waits."""

    __slots__ = ("_actors", "_claim", "_ending", "_job", "answered")

    def __init__(self, actors: JobActors, claim: Claim, job: RunningJob, ending: Finish) -> None:
        self.answered = False
        self._actors = actors
        self._claim = claim
        self._job = job
        self._ending = ending

    def set(self, value: Any) -> None:  # noqa: ARG002 -- the protocol's
        self._close(self._ending)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, CommitterStopped):
            self.answered = True
            self._actors._forget(self._claim, self._job)  # noqa: SLF001 -- its own module
            return
        if isinstance(error, CortexError):
            self._actors._not_recorded(self._claim.lease, error)  # noqa: SLF001
        else:
            _log_lost(self._claim.lease)
        self._close(None)

    def instead(self, error: CortexError) -> Finish | None:
        if self._ending.status is JobStatus.FAILED:
            return None
        self._ending = _refused(self._ending, error)
        return self._ending

    def _close(self, recorded: Finish | None) -> None:
        self.answered = True
        self._actors._ended(self._claim, self._job, recorded)  # noqa: SLF001
        self._actors._forget(self._claim, self._job)  # noqa: SLF001


def _may_run(claim: Claim, job: RunningJob) -> bool:
    """Return whether the handler of an attempt may begin, in this process."""
    is_stopped = job.stop is not None or claim.cancel_requested
    return not (is_stopped or job.is_isolated or trio.current_time() >= job.deadline)


def _refused(ending: Operation, error: CortexError) -> Finish:
    """Return the end of a job that fails because the database refused the value of its end."""
    return Finish(
        lease=ending.lease,
        status=JobStatus.FAILED,
        error=clean_text(error.message),
        code=error.code,
    )


def _log_lost(lease: Lease) -> None:
    _log.info("lease lost", job=str(lease.job_id), attempt=lease.attempt)


def _put_off(claim: Claim) -> Release:
    return Release(
        lease=claim.lease, outcome="handed_back", delay_s=NO_PROCESS_PAUSE_S, is_counted=False
    )


def _stopped(claim: Claim, stop: Stop) -> Operation | None:
    match stop:
        case Stop.CANCELLED:
            return Finish(lease=claim.lease, status=JobStatus.CANCELLED)
        case Stop.HANDED_BACK:
            return Release(lease=claim.lease, outcome="handed_back", is_counted=False)
        case Stop.LEASE_LOST:
            return None
