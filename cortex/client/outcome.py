"""What a handle returns or raises for a job that has ended."""

from typing import Any

import orjson

from cortex.client.submission import SubmittableJob
from cortex.domain.errors import (
    InvalidOutputError,
    InvalidValueError,
    JobCancelledError,
    JobFailedError,
)
from cortex.domain.job import JobStatus
from cortex.domain.job_feed import JobState
from cortex.durable.registry import JobType


def result_of(state: JobState, job: SubmittableJob[Any] | str | None) -> Any:
    """Return the result of a completed job, in the type that its handler declares.

    Raises `JobFailedError`, `JobCancelledError`, and `InvalidOutputError` for a result that does
    not fit the declared type.
    """
    if state.status is JobStatus.COMPLETED:
        return _restored(state, job)
    if state.status is JobStatus.CANCELLED:
        why = f": {state.cancel_reason}" if state.cancel_reason else ""
        raise JobCancelledError(
            f"job {state.job_id} was cancelled by {state.cancelled_by or 'nobody'}{why}",
            job_id=state.job_id,
            by=state.cancelled_by,
            reason=state.cancel_reason,
        )
    raise JobFailedError(
        f"job {state.job_id} failed with {state.error_code}: {state.error_message}",
        hint=f"its dead letter can be retried: cortex dead show {state.job_id}",
        job_id=state.job_id,
        error_code=state.error_code,
        error_class=state.error_class,
    )


def _restored(state: JobState, job: SubmittableJob[Any] | str | None) -> Any:
    value = None if state.result is None else orjson.loads(state.result)
    declared = job.result if isinstance(job, JobType) else None
    if declared is None:
        return value
    try:
        return declared.restore(value, f"the result of job {state.job_id}")
    except InvalidValueError as error:
        raise InvalidOutputError(
            error.message,
            raw=state.result or "",
            hint="the handler here differs from that of the pod: handle = client.handle(id) "
            "returns plain JSON",
        ) from error
