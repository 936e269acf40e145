"""Jobs that wait for a retry: releases the due ones, and a single one at once for a person."""

from collections.abc import Callable
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import APPROVAL
from cortex.domain.effect import UNKNOWN_EFFECT
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.waiting import named
from cortex.postgres.database import Database, Record
from cortex.store import dead_letters
from cortex.store.dead_letters import Resubmission
from cortex.store.passes import DuePass
from cortex.store.rows import row_of

RETRY_BATCH = 200


@attrs.frozen(kw_only=True)
class DueRetries(DuePass):
    """The result of one pass over due jobs."""

    is_held: bool
    """Some jobs wait for a breaker or a quota besides their time."""


async def due(db: Database, *, limit: int = RETRY_BATCH) -> DueRetries:
    """Give a task to each due job in RETRY.

    Safe in many pods at once: one works, and a job gets one task. After `OutcomeUnknownError` just
    call it again.
    """
    row = await db.fetch_one("retries.due", limit)
    if row is None:
        raise AssertionError("retries.due always answers")
    return row_of(DueRetries, row)


@attrs.frozen(kw_only=True)
class Retried:
    """The result of a person's request to retry a job."""

    status: JobStatus
    """Of the job; a retry does not change it."""
    waiting_on: str | None
    retried_as: UUID | None = None
    """The new job that continues a failed one."""

    @property
    def words(self) -> str:
        """For people."""
        if self.retried_as is None:
            return "tries again now"
        return f"goes on as {short_id(self.retried_as)}, from its last checkpoint"


async def retry_now(
    db: Database,
    job_id: UUID,
    *,
    by: str,
    reason: str,
    new_id: Callable[[], UUID],
    credential: str | None = None,
) -> Retried:
    """Retry a job at once; record who and why. `new_id` names a new job, if there is one.

    In RETRY, or between two worker attempts, the job itself continues; whether a breaker admits its
    calls is decided again when it makes them. Pods whose code has handed it back look at it again.
    A failed job is continued by a new one, as a retry of its dead letter does. Raises
    `NotFoundError`, and `ConflictError` for any other job.
    """
    row = await db.fetch_one("retries.now", [job_id], by, reason, credential)
    if row is None:
        raise NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
    if row["status"] == JobStatus.FAILED:
        wanted = Resubmission(job_id=job_id, new_id=new_id())
        (done,) = await dead_letters.resubmit(
            db, [wanted], by=by, credential=credential, reason=reason
        )
        if done.error is not None:
            raise done.error
        return Retried(status=JobStatus.FAILED, waiting_on=None, retried_as=wanted.new_id)
    if not row["is_let_go"]:
        raise _refusal(job_id, row)
    return Retried(status=JobStatus(row["status"]), waiting_on=row["waiting_on"])


def _refusal(job_id: UUID, row: Record) -> ConflictError:
    """Return an error with the job's state and what to do about it."""
    status = JobStatus(row["status"])
    why = f"see what it waits for: cortex why {job_id}"
    match status:
        case JobStatus.COMPLETED | JobStatus.CANCELLED:
            what, hint = f"is {status.value}: it has ended", "submit it anew: cortex jobs submit"
        case JobStatus.WAITING_FOR_APPROVAL if not row["has_task"]:
            budget = (row["waiting_on"] or "").removeprefix("budget:")
            is_budget = budget != row["waiting_on"] and budget
            what = f"waits for {named(row['waiting_on'])}, not for a retry"
            hint = f"cortex budgets raise {budget} --to AMOUNT --reason TEXT" if is_budget else why
            for prefix, noun in ((APPROVAL, "approvals"), (UNKNOWN_EFFECT, "effects")):
                if (row["waiting_on"] or "").startswith(prefix):
                    hint = f"cortex {noun} show {row['waiting_on'].removeprefix(prefix)}"
        case JobStatus.RUNNING if row["task_state"] == "LOCKED":
            what, hint = "is running just now", f"follow it: cortex jobs watch {job_id}"
        case JobStatus.PENDING:
            what, hint = "is PENDING: it was not tried yet", why
        case _:
            what, hint = "is due already", why
    return ConflictError(f"job {job_id} {what}", hint=hint)
