"""One actor per running attempt: job scope around the handler, then one operation that ends it.

Owns: its `RunningJob` entry and the context of the attempt. Holds no connection while it runs.

On failure of the handler: the attempt is released to be tried again by the worker layer, or the
job fails when its attempts are spent or the error can never be mended.
On stop: a cancelled job ends as CANCELLED, a leaving pod hands the job back uncounted, a lost
lease touches nothing more. Nothing that a handler raises leaves this actor.
"""

import random
from typing import Any, Final

import attrs
import structlog
import trio

from cortex.domain.errors import (
    CortexError,
    LeaseLost,
    RejectedError,
    UnavailableError,
    UsageError,
)
from cortex.domain.job import Claim, Finish, JobStatus, Operation, Release, Step
from cortex.domain.retry import worker_delay_s
from cortex.durable.codec import clean_text, encode
from cortex.durable.context import Context, Services
from cortex.durable.journal import Journal
from cortex.durable.registry import Registry
from cortex.services.committer import Committer
from cortex.services.running import RunningJob, RunningJobs, Stop
from cortex.store import steps
from cortex.store.bridge import Port

LOAD_BACKOFF_MAX_S: Final = 5.0
LEAVES_MAX: Final = 1_000

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class JobActors:
    """Makes and runs the actors of a pod's jobs."""

    port: Port
    committer: Committer
    registry: Registry
    services: Services
    running: RunningJobs
    rng: random.Random

    async def run(self, claim: Claim, job: RunningJob) -> None:
        """Run one attempt to its end and report it. Raises nothing but `trio.Cancelled`."""
        try:
            ending = await self._attempt(claim, job)
            if ending is not None and job.stop is not Stop.LEASE_LOST:
                await self._report(ending)
        finally:
            self.running.remove(job)

    async def _attempt(self, claim: Claim, job: RunningJob) -> Operation | None:
        """Run the handler; return the operation that ends the attempt, or None for a lost lease."""
        if claim.cancel_requested:
            return Finish(lease=claim.lease, status=JobStatus.CANCELLED)
        raised: BaseException | None = None
        result: Any = None
        try:
            with job.scope:
                result = await self._handle(claim)
        except (KeyboardInterrupt, trio.Cancelled):
            raise
        except BaseException as error:  # noqa: BLE001 -- also SystemExit: a job must not end its pod
            raised = error
        if job.stop is not None and (raised is not None or job.scope.cancelled_caught):
            return _stopped(claim, job.stop)
        if raised is not None:
            return failed(claim, raised)
        if job.scope.cancelled_caught:
            message = f"Job timed out after {claim.timeout_s} seconds"
            return Finish(
                lease=claim.lease, status=JobStatus.FAILED, error=message, code="job_timed_out"
            )
        try:
            text = encode(result, what=f"result of job type {claim.type!r}")
        except Exception as error:  # noqa: BLE001 -- converting runs the job's own code
            return failed(claim, error)
        return Finish(lease=claim.lease, status=JobStatus.COMPLETED, result=text)

    async def _handle(self, claim: Claim) -> Any:
        job_type = self.registry.get(claim.type)
        arguments = job_type.arguments(claim.payload)
        known = await self._load_steps(claim) if claim.has_steps else ()
        journal = Journal(claim.lease, self.committer, known)
        return await job_type.handler(Context(claim, journal, self.services), **arguments)

    async def _load_steps(self, claim: Claim) -> list[Step]:
        """Load what earlier attempts committed; an outage costs time, but no attempt."""
        backoff_s = 0.1
        while True:
            try:
                return await self.port(steps.of_job, claim.lease.job_id)
            except UnavailableError as error:
                _log.warning("steps not loaded", job=str(claim.lease.job_id), error=error.message)
            await trio.sleep(self.rng.uniform(0.5, 1.0) * backoff_s)
            backoff_s = min(2 * backoff_s, LOAD_BACKOFF_MAX_S)

    async def _report(self, ending: Operation) -> None:
        """Commit the end of the attempt; only the end of the pod's drain cuts it off."""
        try:
            await self.committer.record(ending)
        except LeaseLost:
            _log.info("lease lost", job=str(ending.lease.job_id), attempt=ending.lease.attempt)
        except CortexError as error:
            # The database refused the value, so the job fails with the reason instead.
            await self._report_refusal(ending, error)

    async def _report_refusal(self, ending: Operation, error: CortexError) -> None:
        refused = Finish(
            lease=ending.lease,
            status=JobStatus.FAILED,
            error=clean_text(error.message),
            code=error.code,
        )
        try:
            await self.committer.record(refused)
        except LeaseLost:
            _log.info("lease lost", job=str(ending.lease.job_id), attempt=ending.lease.attempt)
        except CortexError as second:
            # Its heartbeat ends with this actor, so the sweep will find it.
            _log.error("end of attempt not recorded", job=str(ending.lease.job_id), error=second)


def _stopped(claim: Claim, stop: Stop) -> Operation | None:
    match stop:
        case Stop.CANCELLED:
            return Finish(lease=claim.lease, status=JobStatus.CANCELLED)
        case Stop.HANDED_BACK:
            return Release(lease=claim.lease, outcome="handed_back", is_counted=False)
        case Stop.LEASE_LOST:
            return None


def failed(claim: Claim, error: BaseException) -> Operation | None:
    """Decide what a handler's error does to its job: try again, fail, or None: lease lost."""
    leaves = _leaves(error)
    if any(isinstance(leaf, LeaseLost) for leaf in leaves):
        return None
    worst = next((leaf for leaf in leaves if _is_permanent(leaf)), leaves[0])
    message = describe(worst)
    is_last = claim.attempts_spent >= claim.max_attempts
    _log_failure(claim, error, message)
    if _is_permanent(worst) or is_last:
        code = worst.code if isinstance(worst, CortexError) else "job_failed"
        return Finish(lease=claim.lease, status=JobStatus.FAILED, error=message, code=code)
    return Release(
        lease=claim.lease,
        outcome="failed",
        delay_s=worker_delay_s(claim.attempts_spent),
        error=message,
    )


def describe(error: BaseException) -> str:
    """Return one line for people that names the error."""
    try:
        if isinstance(error, CortexError):
            return clean_text(error.message)
        text = " ".join(str(error).split())
    except (KeyboardInterrupt, trio.Cancelled):
        raise
    except BaseException:  # noqa: BLE001 -- an error whose text cannot be had still has a name
        text = ""
    return clean_text(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _is_permanent(error: BaseException) -> bool:
    return isinstance(error, RejectedError | UsageError)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside a group, whatever its depth; at most `LEAVES_MAX` of them."""
    waiting: list[BaseException] = [error]
    leaves: list[BaseException] = []
    while waiting and len(leaves) < LEAVES_MAX:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(each.exceptions)
        else:
            leaves.append(each)
    return leaves


def _log_failure(claim: Claim, error: BaseException, message: str) -> None:
    context = {"job": str(claim.lease.job_id), "type": claim.type, "attempt": claim.lease.attempt}
    try:
        _log.warning("attempt failed", error=message, exc_info=error, **context)
    except (KeyboardInterrupt, trio.Cancelled):
        raise
    except BaseException as second:  # noqa: BLE001 -- a job's own error must not end its pod
        reason = type(second).__name__
        _log.warning("attempt failed", error=message, no_traceback=reason, **context)
