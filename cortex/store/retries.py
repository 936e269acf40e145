"""Jobs that wait to be tried again: letting the due ones go, and one at once for a person."""

from uuid import UUID

from cortex.domain.approval import APPROVAL
from cortex.domain.effect import UNKNOWN_EFFECT
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import JobStatus
from cortex.domain.waiting import named
from cortex.store.database import Database, Record

RETRY_BATCH = 200


async def due(db: Database, *, limit: int = RETRY_BATCH) -> int:
    """Give due jobs in RETRY a task each; return how many.

    Safe in many pods at once: one looks, for the others nothing is due, and a job gets one task.
    After `OutcomeUnknownError` just look again.
    """
    row = await db.fetch_one("retries.due", limit)
    return row["count"] if row else 0


async def retry_now(db: Database, job_id: UUID, *, by: str, reason: str) -> JobStatus:
    """Let a job in RETRY, or between two worker attempts, try again at once; record who and why.

    Whether a breaker lets its calls pass is decided again when it makes them. Returns the job's
    state, which does not change. Raises `NotFoundError`, and `ConflictError` for any other job.
    """
    row = await db.fetch_one("retries.now", [job_id], by, reason)
    if row is None:
        raise NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
    if not row["is_let_go"]:
        raise _refusal(job_id, row)
    return JobStatus(row["status"])


def _refusal(job_id: UUID, row: Record) -> ConflictError:
    """Say what the job is instead, and what to do about it."""
    status = JobStatus(row["status"])
    why = f"see what it waits for: cortex why {job_id}"
    match status:
        case JobStatus.COMPLETED | JobStatus.CANCELLED:
            what, hint = f"is {status.value}: it has ended", "submit it anew: cortex jobs submit"
        case JobStatus.FAILED:
            what = "is FAILED: its retries are over"
            hint = f"cortex jobs resume {job_id}, or cortex dead retry {job_id}"
        case JobStatus.WAITING_FOR_APPROVAL if not row["has_task"]:
            budget = (row["waiting_on"] or "").removeprefix("budget:")
            is_budget = budget != row["waiting_on"] and budget
            what = f"waits for {named(row['waiting_on'] or 'a decision')}, not for a retry"
            hint = f"cortex budgets raise {budget} --to AMOUNT --reason TEXT" if is_budget else why
            for prefix, look in ((APPROVAL, "approvals"), (UNKNOWN_EFFECT, "effects")):
                if (row["waiting_on"] or "").startswith(prefix):
                    hint = f"cortex {look} show {row['waiting_on'].removeprefix(prefix)}"
        case JobStatus.RUNNING if row["task_state"] == "LOCKED":
            what, hint = "is running just now", f"follow it: cortex jobs watch {job_id}"
        case JobStatus.PENDING:
            what, hint = "is PENDING: it was not tried yet", why
        case _:
            what, hint = "is due already", why
    return ConflictError(f"job {job_id} {what}", hint=hint)
