"""Receipts of time-outs: taken when a limit has ended something, and recorded once each.

Owns: the progress of each attempt that runs here. Reads: its journal's progress, this machine's
disk. Writes: receipts. Nothing is collected for jobs that do not time out.

A receipt is recorded before the end of its attempt: a reader of a failed job finds it, and no later
attempt writes to the folders while they are examined. A pod that dies in between has not ended the
attempt: the next one meets the same limit, or goes on. A receipt that an outage keeps out of the
record is recorded after the end of the attempt, which waits for the database anyway.

On failure: it is logged, or the receipt reports what could not be examined; no job fails or waits
for it. Examining files is bounded (`cortex.agent.workspace.receipts`), and so is each write (the
port).
On stop: examining is cut short, and the receipt says so.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import orjson
import structlog
import trio

from cortex.agent.workspace.receipts import take_receipt
from cortex.agent.workspace.timeout_lines import TimeoutLine, append_line
from cortex.crash_points import crash_point
from cortex.domain.classification import class_name, describe
from cortex.domain.errors import CortexError, UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.job import RUN_FLOW, Claim, Lease, Operation, StepKind
from cortex.domain.timeouts import (
    PARTIAL_TEXT_MAX_BYTES,
    FinalAction,
    Interruption,
    TimeoutReceipt,
    clipped,
    recommended_choice,
)
from cortex.durable.calls import Caller
from cortex.durable.progress import Progress
from cortex.postgres.bridge import Port
from cortex.runtime.jobs.fired_limits import Attempt, of_call, of_error, of_job
from cortex.runtime.running import RunningJob
from cortex.store import jobs, timeouts

WRITE_S: Final = 5.0

_log = structlog.get_logger(__name__)


class Receipts:
    """Takes receipts for the job actors, and for calls whose attempts go on."""

    def __init__(self, port: Port, *, workspaces: Path, unix_ms: Callable[[], int]) -> None:
        """`unix_ms` is this machine's clock, by which its files are stamped."""
        self._port = port
        self._workspaces = workspaces
        self._unix_ms = unix_ms
        self._attempts: dict[Lease, Attempt] = {}
        self._unkept: dict[Lease, TimeoutReceipt] = {}

    def follow(self, claim: Claim, progress: Progress) -> None:
        """An attempt begins to run its handler."""
        self._attempts[claim.lease] = Attempt(claim, progress, trio.current_time())

    def forget(self, lease: Lease) -> None:
        self._attempts.pop(lease, None)
        self._unkept.pop(lease, None)

    def has_unkept(self, lease: Lease) -> bool:
        """Return whether an outage kept a receipt of this attempt out of the record."""
        return lease in self._unkept

    def progress_of(self, lease: Lease) -> Progress | None:
        """The progress of an attempt, while its handler runs here and until its end is recorded."""
        attempt = self._attempts.get(lease)
        return None if attempt is None else attempt.progress

    async def went_on(self, caller: Caller, failure: Failure) -> None:
        """Record the receipt of a call that a limit has ended while its attempt goes on.

        A tool's call is reported to the model, others are repeated; a model's call has left no
        files.
        """
        attempt = self._attempts.get(caller.lease)
        step = None if attempt is None else attempt.progress.under_way(caller.key)
        if attempt is None or step is None:
            return
        is_tool = step.kind is StepKind.TOOL
        action = FinalAction.TOLD_MODEL if is_tool else FinalAction.RETRIED_CALL
        interruption = of_call(attempt, failure, [step], action=action)
        if interruption is None:
            return
        is_model = step.kind is StepKind.MODEL
        receipt = (
            self._bare(interruption) if is_model else await self._taken(interruption, attempt.claim)
        )
        await self._kept(receipt)
        await self._noted(attempt.claim, receipt)

    async def ended(
        self, claim: Claim, job: RunningJob, operation: Operation, error: BaseException | None
    ) -> None:
        """Leave a receipt if a limit is why the attempt is about to end by `operation`.

        `error` is the handler's error; None: the job's own limit has fired. From here on stopping
        the job only cuts this short.
        """
        attempt = self._attempts.get(claim.lease) or await self._unfollowed(claim)
        try:
            if error is None:
                interruption: Interruption | None = of_job(attempt, deadline=job.deadline)
            else:
                interruption = of_error(attempt, error, operation)
        except BaseException as second:  # noqa: BLE001, ASYNC103 -- it runs code of the job's own error
            _log_not_taken(claim, second)
            return  # noqa: ASYNC104 -- logged
        if interruption is None:
            return
        receipt = self._bare(interruption, problem="examining its files was cut short")
        with trio.CancelScope() as scope:
            job.scope = scope
            if job.stop is not None:
                scope.cancel(reason=job.stop.name)
            receipt = await self._taken(interruption, claim)
        if not await self._kept(receipt):
            self._unkept[claim.lease] = receipt
        await self._noted(claim, receipt)

    async def offer_again(self, lease: Lease) -> None:
        """Record what an outage kept out of the record before the end of the attempt."""
        receipt = self._unkept.get(lease)
        if receipt is not None:
            await self._kept(receipt)

    async def _taken(self, interruption: Interruption, claim: Claim) -> TimeoutReceipt:
        try:
            return await take_receipt(
                interruption,
                workspace=self._workspaces / str(claim.lineage_id or claim.lease.job_id),
                folder=_folder(claim.payload),
                unix_ms=self._unix_ms,
            )
        except Exception as error:  # noqa: BLE001 -- no threads, no files: not the pod's end
            _log_not_taken(claim, error)
            return self._bare(
                interruption, problem=f"its files could not be examined: {describe(error)}"
            )

    def _bare(self, interruption: Interruption, *, problem: str | None = None) -> TimeoutReceipt:
        """The receipt of a time-out whose files were not examined."""
        left_s = (
            interruption.step_elapsed_s
            if interruption.unsettled_s is None
            else interruption.unsettled_s
        )
        began_s = self._unix_ms() / 1000 - left_s
        return TimeoutReceipt(
            interruption=_storable(interruption),
            step_started_at=datetime.fromtimestamp(began_s, UTC),
            problem=problem,
        )

    async def _kept(self, receipt: TimeoutReceipt) -> bool:
        """Record a receipt; False if it may be offered again."""
        job_id = str(receipt.interruption.lease.job_id)
        try:
            crash_point("before_receipt")
            await self._port(timeouts.record, [receipt])
            crash_point("after_receipt")
        except UnavailableError as error:
            _log.warning("receipt not recorded", job=job_id, error=error.message)
            return False
        except Exception as error:  # noqa: BLE001 -- no job and no pod ends for a receipt
            _log.error("receipt refused", job=job_id, error=describe(error))
        return True

    async def _noted(self, claim: Claim, receipt: TimeoutReceipt) -> None:
        """Add a line to the `timeouts.jsonl` of a flow's run."""
        if claim.type != RUN_FLOW:
            return
        fired = receipt.interruption
        line = TimeoutLine(
            flow=flow_of(claim.payload),
            job_id=str(claim.lease.job_id),
            attempt=claim.lease.attempt,
            step=fired.step_key,
            scope=fired.scope,
            limit_ms=round(fired.limit_s * 1000),
            elapsed_ms=round(fired.elapsed_s * 1000),
            recovery=recommended_choice(receipt),
            final_action=fired.final_action,
            at=datetime.fromtimestamp(self._unix_ms() / 1000, UTC).isoformat(),
        )
        workspace = self._workspaces / str(claim.lineage_id or claim.lease.job_id)
        try:
            with trio.move_on_after(WRITE_S):
                await trio.to_thread.run_sync(append_line, workspace, line, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 -- no job and no pod ends for a receipt
            _log.warning("timeouts.jsonl not written", job=line.job_id, error=describe(error))

    async def _unfollowed(self, claim: Claim) -> Attempt:
        """An attempt whose time was over before its steps were loaded: built from the job's head.

        Its leftovers are from earlier attempts, so all of the job's time is examined.
        """
        head = {}
        if claim.has_steps:
            try:
                head = (await self._port(jobs.show, claim.lease.job_id)).checkpoint
            except CortexError as error:
                job_id = str(claim.lease.job_id)
                _log.warning("last checkpoint not read", job=job_id, error=error.message)
        progress = Progress(head.get("seq", 0), head.get("key"))
        return Attempt(claim, progress, trio.current_time() - claim.timeout_s)


def _log_not_taken(claim: Claim, error: BaseException) -> None:
    log = partial(_log.error, "receipt not taken", job=str(claim.lease.job_id))
    try:
        log(exc_info=error)
    except BaseException:  # noqa: BLE001, ASYNC103 -- formatting runs the errors' own code
        log(no_traceback=class_name(error))


def _storable(interruption: Interruption) -> Interruption:
    if interruption.partial_text is None:
        return interruption
    return attrs.evolve(
        interruption, partial_text=clipped(interruption.partial_text, PARTIAL_TEXT_MAX_BYTES)
    )


def flow_of(payload: str) -> str:
    """Return the flow that a payload of `run_flow` names, with its version."""
    given = orjson.loads(payload)
    return f"{given.get('flow')} v{given.get('version')}"


def _folder(payload: str) -> Path | None:
    """The folder that a job works in besides its workspace, as `run_agent` receives it."""
    try:
        given = orjson.loads(payload)
    except ValueError:  # Postgres holds JSON that Python cannot parse
        return None
    folder = given.get("folder") if isinstance(given, dict) else None
    path = Path(folder) if isinstance(folder, str) else None
    return path if path is not None and path.is_absolute() else None
