"""One actor per running attempt: job scope around the handler, then one operation that ends it.

Owns: its `RunningJob` entry and the context of the attempt. Holds no connection while it runs.

On failure of the handler: the class of the error decides (see `job_ending`): the worker layer or
the application layer tries again, or the job is suspended, or it fails.
On stop: a cancelled job ends as CANCELLED; a pod that shuts down hands the job back uncounted;
after a lost lease nothing more is written. No error of a handler leaves this actor.

A job's own limit is hard: after the deadline it is a time-out, whatever its handler returns or
raises. A limit that ends an attempt leaves its receipt first, see `receipts`.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol
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
    OpenEffect,
    Operation,
    Release,
    Step,
)
from cortex.domain.policy import JobPolicy
from cortex.domain.redaction import clean_text
from cortex.durable.attempt import Services
from cortex.durable.handling import Recorded, run_handler
from cortex.durable.journal import LeaveRequest
from cortex.durable.progress import Progress
from cortex.durable.registry import Registry
from cortex.durable.tally import Tally
from cortex.postgres.bridge import Port, leave_island
from cortex.runtime.commit.committer import Committer
from cortex.runtime.isolation.isolation import AttemptReport, Isolation, RunnerDied
from cortex.runtime.jobs.job_ending import ending_of, not_judged, out_of_time, process_died
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.jobs.running import RunningJob, RunningJobs, Stop
from cortex.runtime.metrics.metrics import Metrics
from cortex.store import effects, steps

NO_PROCESS_PAUSE_S: Final = 1.0
"""Delay before a job is due again for which no process could be forked."""

_log = structlog.get_logger(__name__)


class Policies(Protocol):
    """Finds the policy that a job began with, once the database is available."""

    async def policy(self, claim: Claim) -> JobPolicy:
        """Return the job's attempts and time-outs."""


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

    @property
    def isolated_slots(self) -> int:
        """How many jobs may run in processes of their own at once."""
        return self.running.slots if self.isolation is None else self.isolation.slots

    def isolates(self, claim: Claim) -> bool:
        """Return whether a job runs in a process of its own."""
        is_asked = claim.is_suspect or claim.type in self.registry.isolated_names
        return is_asked and self.isolation is not None

    async def run(self, claim: Claim, job: RunningJob) -> None:
        """Run one attempt to its end and report it. Raises nothing but `trio.Cancelled`."""
        try:
            # The pod is shutting down: no code of a late claim may run here.
            ending = _stopped(claim, job.stop) if job.stop else await self._ending(claim, job)
            if ending is not None and job.stop is not Stop.LEASE_LOST:
                recorded = await self._report(ending)
                job.is_recorded, job.is_answered = recorded is not None, True
                self.metrics.ended(claim, recorded, ran_s=trio.current_time() - job.claimed_at)
                await self.receipts.offer_again(claim.lease)
            else:
                job.is_answered = True  # by the attempt that owns it
        finally:
            self.receipts.forget(claim.lease)
            self.running.remove(job)

    async def _ending(self, claim: Claim, job: RunningJob) -> Operation | None:
        """Run the handler; return the operation that ends the attempt, or None for a lost lease."""
        if claim.cancel_requested:
            return Finish(lease=claim.lease, status=JobStatus.CANCELLED)
        if claim.left_s <= 0:
            # Its handler does not begin: one that computes without an `await` would hold the pod.
            return await self._out_of_time(claim, job, None)
        if self.isolation is not None and job.is_isolated:
            return await self._isolated(self.isolation, claim, job)
        return await self._attempt(claim, job)

    async def _attempt(self, claim: Claim, job: RunningJob) -> Operation | None:
        """Run the handler in this process; return as `_ending` does."""
        result, raised = await self._ran(claim, job)
        is_late = job.scope.cancelled_caught or trio.current_time() >= job.scope.deadline
        if is_late:
            return await self._out_of_time(claim, job, raised)
        if raised is not None:
            return await self._failed(claim, job, raised)
        return Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=result)

    async def _ran(self, claim: Claim, job: RunningJob) -> tuple[str | None, BaseException | None]:
        """Run the handler within the job's scope; return its result as JSON, or its error."""
        result: str | None = None
        raised: BaseException | None = None
        job.task = trio.lowlevel.current_task()
        leave_island()
        try:
            with job.scope:
                result = await self._handle(claim, job)
        except (KeyboardInterrupt, trio.Cancelled):
            raise
        except BaseException as error:  # noqa: BLE001 -- also SystemExit: a job must not end its pod
            raised = error
        finally:
            job.task = None
        return result, raised

    async def _isolated(
        self, isolation: Isolation, claim: Claim, job: RunningJob
    ) -> Operation | None:
        """Run the handler in a process of its own; return as `_ending` does."""
        ended: AttemptReport | RunnerDied | None = None
        tally = Tally(())
        try:
            with job.scope:
                recorded = await self._recorded(claim)
                tally = Tally(recorded.steps)
                job.progress = tally.progress
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
        is_late = job.scope.cancelled_caught or trio.current_time() >= job.scope.deadline
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
                ran_s=trio.current_time() - job.claimed_at,
                final=self._final(claim),
            )
        except Exception as second:  # noqa: BLE001 -- a job's own error must not end its pod
            ending = not_judged(claim, error, second)
        if ending is not None:
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

    async def _handle(self, claim: Claim, job: RunningJob) -> str:
        def follow(progress: Progress) -> None:
            job.progress = progress
            self.receipts.follow(claim, progress)

        return await run_handler(
            self.registry,
            claim,
            recorder=self.committer,
            recorded=await self._recorded(claim),
            leave=LeaveRequest(
                is_asked=self.running.hands_back, hand_back=partial(job.end, Stop.HANDED_BACK)
            ),
            services=self.services,
            follow=follow,
        )

    def _final(self, claim: Claim) -> tuple[type[Exception], ...]:
        """The errors that its type declares final; none for a type that is gone."""
        return self.registry.get(claim.type).final if claim.type in self.registry.names else ()

    async def _recorded(self, claim: Claim) -> Recorded:
        job_id = claim.lease.job_id
        goes_on = claim.lineage_id is not None and claim.has_steps
        answered = partial(
            retry_while_unavailable, log=_log, event="steps not loaded", rng=self.rng
        )
        committed_steps: Sequence[Step] = ()
        left: Sequence[OpenEffect] = ()
        if claim.has_steps:
            committed_steps = await answered(lambda: self.port(steps.of_job, job_id))
        if claim.has_open or goes_on:
            line = claim.lineage_id or job_id
            left = await answered(
                lambda: self.port(effects.unrecorded, job_id, lineage_id=line, of_line=goes_on)
            )
        return Recorded(steps=committed_steps, effects=left, recall=partial(self._recall, job_id))

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
            _log.info("lease lost", job=str(ending.lease.job_id), attempt=ending.lease.attempt)
            return None
        except CortexError as error:
            # The database refused the value, so the job fails with the reason instead.
            return await self._report_refusal(ending, error)

    async def _report_refusal(self, ending: Operation, error: CortexError) -> Operation | None:
        refused = Finish(
            lease=ending.lease,
            status=JobStatus.FAILED,
            error=clean_text(error.message),
            code=error.code,
        )
        try:
            await self.committer.record(refused)
            return refused
        except LeaseLost:
            _log.info("lease lost", job=str(ending.lease.job_id), attempt=ending.lease.attempt)
        except CortexError as second:
            # Its heartbeat ends with this actor, so the sweep will find it.
            self.running.unrecorded.append(ending.lease.job_id)
            _log.error("end of attempt not recorded", job=str(ending.lease.job_id), error=second)
        return None


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
