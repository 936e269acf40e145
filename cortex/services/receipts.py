"""Receipts of time-outs: taken when a limit has ended something, and recorded once each.

Owns: what each running attempt is at, as far as its journal tells. Reads: the disc of this machine.
Writes: receipts. Of jobs that do not time out nothing is collected.

A receipt is in the record before the end of its attempt is: nobody who finds the job failed takes
it for clean, and no next attempt writes to the same folders while they are looked at. A pod that
dies between the two has not ended the attempt: the next one ends by the same limit, or goes on. The
wait is bounded: `receipts.LOOK_S` and the database's bound. What an outage keeps out of the record
is offered once more after the end of the attempt, which waits for the database anyway.

On failure: the receipt is logged, or says what could not be seen; no job fails or waits for it.
On stop: looking is cut short with the job's scope, the receipt tells so.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import attrs
import orjson
import structlog
import trio

from cortex.agent.receipts import take_receipt
from cortex.domain.causes import leaves
from cortex.domain.errors import CortexError, Suspended, UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.job import Claim, Finish, Lease, Operation, Release, StepKind, Suspend
from cortex.domain.timeout_receipt import (
    PARTIAL_TEXT_MAX_BYTES,
    FinalAction,
    Interruption,
    Phase,
    Scope,
    TimeoutReceipt,
    clipped,
)
from cortex.durable.calls import Caller
from cortex.durable.progress import Progress, StepUnderWay, limit_of, timed_out_by
from cortex.services.running import RunningJob
from cortex.store import jobs, timeouts
from cortex.store.bridge import Port

PHASES: Final = {
    StepKind.MODEL: Phase.MODEL,
    StepKind.TOOL: Phase.TOOL,
    StepKind.STEP: Phase.STEP,
}
_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class _Attempt:
    claim: Claim
    progress: Progress
    began: float
    """Trio's clock."""
    unkept: TimeoutReceipt | None = None
    """A receipt that an outage kept out of the record."""


class Receipts:
    """Takes receipts for the job actors, and for calls whose attempts go on."""

    def __init__(self, port: Port, *, workspaces: Path, unix_ms: Callable[[], int]) -> None:
        """`unix_ms` is this machine's clock, by which its files are stamped."""
        self._port = port
        self._workspaces = workspaces
        self._unix_ms = unix_ms
        self._attempts: dict[Lease, _Attempt] = {}

    def follow(self, claim: Claim, progress: Progress) -> None:
        """An attempt begins to run its handler."""
        self._attempts[claim.lease] = _Attempt(claim, progress, trio.current_time())

    def forget(self, lease: Lease) -> None:
        """The attempt has ended."""
        self._attempts.pop(lease, None)

    async def went_on(self, caller: Caller, failure: Failure) -> None:
        """Leave a receipt of a call that timed out while its attempt goes on; of others nothing.

        A model's call is made again and has left nothing; of a tool's the model is told.
        """
        attempt = self._attempts.get(caller.lease)
        step = None if attempt is None else attempt.progress.under_way(caller.key)
        if attempt is None or step is None or failure.scope is None or failure.limit_s is None:
            return
        is_tool = step.kind is StepKind.TOOL
        action = FinalAction.TOLD_MODEL if is_tool else FinalAction.RETRIED_CALL
        told = _interruption(attempt, failure, [step], action=action)
        receipt = await self._taken(told, attempt.claim) if is_tool else self._bare(told)
        await self._kept(receipt)

    async def ended(
        self, claim: Claim, job: RunningJob, operation: Operation, error: BaseException | None
    ) -> None:
        """Leave a receipt if a time-out is why the attempt ends by `operation`.

        `error` is what the handler raised, None when the job's own time was over.
        """
        attempt = self._attempts.get(claim.lease) or await self._unfollowed(claim)
        told = (
            _of_job(attempt, job)
            if error is None
            else _of_error(attempt, operation, error, action=_action(operation))
        )
        if told is None:
            return
        receipt = self._bare(told, problem="looking at its files was cut short")
        with trio.CancelScope() as job.scope:  # whoever stops the job now does not wait for it
            if job.stop is not None:
                job.scope.cancel(reason=job.stop.name)
            receipt = await self._taken(told, claim)
        if not await self._kept(receipt):
            attempt.unkept = receipt
            self._attempts[claim.lease] = attempt

    async def offer_again(self, lease: Lease) -> None:
        """Record what an outage kept out of the record before the end of the attempt."""
        attempt = self._attempts.get(lease)
        if attempt is not None and attempt.unkept is not None:
            await self._kept(attempt.unkept)

    async def _taken(self, told: Interruption, claim: Claim) -> TimeoutReceipt:
        try:
            return await take_receipt(
                told,
                workspace=self._workspaces / str(claim.lineage_id or claim.lease.job_id),
                folder=_folder(claim.payload),
                unix_ms=self._unix_ms,
            )
        except Exception as error:
            # Of any kind: a machine out of threads or files must not end the pod by a receipt.
            _log.exception("receipt not taken", job=str(claim.lease.job_id))
            return self._bare(told, problem=f"its files could not be looked at: {describe(error)}")

    def _bare(self, told: Interruption, *, problem: str | None = None) -> TimeoutReceipt:
        """The receipt of a time-out whose files nobody has looked at."""
        began_ms = self._unix_ms() - 1000 * told.step_elapsed_s
        return TimeoutReceipt(
            interruption=told,
            step_started_at=datetime.fromtimestamp(began_ms / 1000, UTC),
            problem=problem,
        )

    async def _kept(self, receipt: TimeoutReceipt) -> bool:
        """Record a receipt; False if it may be offered again."""
        job_id = str(receipt.interruption.lease.job_id)
        try:
            await self._port(timeouts.record, [receipt])
        except UnavailableError as error:
            _log.warning("receipt not recorded", job=job_id, error=error.message)
            return False
        except CortexError as error:
            _log.error("receipt refused", job=job_id, error=error.message)
        return True

    async def _unfollowed(self, claim: Claim) -> _Attempt:
        """An attempt whose time was over before its steps were loaded: its record tells them."""
        head: dict[str, Any] = {}
        if claim.has_steps:
            try:
                head = (await self._port(jobs.show, claim.lease.job_id))["checkpoint"]
            except CortexError as error:
                job_id = str(claim.lease.job_id)
                _log.warning("last checkpoint not known", job=job_id, error=error.message)
        # Whatever was left is from attempts before: all of the job's time is looked at.
        began = trio.current_time() - claim.timeout_s
        return _Attempt(claim, Progress(head.get("seq", 0), head.get("key")), began)


def _of_job(attempt: _Attempt, job: RunningJob) -> Interruption:
    """The job's own limit has fired; what it cut were the steps under way."""
    limit_s = float(attempt.claim.timeout_s)
    deadline = job.scope.deadline
    return _interruption(
        attempt,
        Scope.JOB,
        limit_s,
        attempt.progress.cut_since(deadline),
        elapsed_s=limit_s + max(0.0, trio.current_time() - deadline),
        action=FinalAction.FAILED,
    )


def _of_error(
    attempt: _Attempt, operation: Operation, error: BaseException, *, action: FinalAction
) -> Interruption | None:
    """The limit that made a handler fail, or wait for a breaker; None if none did."""
    is_wish = isinstance(operation, Suspend) and operation.code is None
    found = [timed_out_by(leaf) for leaf in leaves(error) if isinstance(leaf, Suspended) is is_wish]
    timed_out = next(filter(None, found), None)
    failure = timed_out and timed_out.failure if is_wish else limit_of(error)
    if failure is None or failure.scope is None or failure.limit_s is None:
        return None
    if timed_out is not None and timed_out.failure.scope == failure.scope:
        steps = [timed_out.step]
    else:
        steps = attempt.progress.cut_since(-math.inf)
    scope, limit_s = Scope(failure.scope), failure.limit_s
    return _interruption(attempt, scope, limit_s, steps, elapsed_s=..., action=action)
