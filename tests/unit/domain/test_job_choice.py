"""Why an act leaves a job as it is."""

import pytest

from cortex.domain.job import JobStatus
from cortex.domain.job_filter import JobSituation, Refusal, why_not_cancel, why_not_retry

S = JobStatus


@pytest.mark.parametrize("status", JobStatus)
def test_every_unfinished_job_can_be_cancelled(status: JobStatus) -> None:
    assert why_not_cancel(status) is (Refusal.ENDED if status.is_terminal else None)


@pytest.mark.parametrize(
    "status, waiting_on, task_state, is_later, found",
    [
        (S.COMPLETED, None, None, False, Refusal.ENDED),
        (S.FAILED, None, None, False, Refusal.ENDED),
        (S.PENDING, None, "LATER", True, Refusal.UNTRIED),
        (S.RUNNING, None, "LOCKED", False, Refusal.RUNNING),
        (S.RUNNING, None, "LATER", True, None),
        (S.RUNNING, None, "QUEUED", True, None),
        (S.RUNNING, None, "READY", False, Refusal.DUE),
        (S.RUNNING, None, None, False, Refusal.WAITING),
        (S.RETRY, "llm:x", None, False, None),
        (S.RETRY, None, "READY", False, Refusal.DUE),
        (S.RETRY, "code", "READY", False, Refusal.CODE),
        (S.RETRY, "sleep", None, False, Refusal.WAITING),
        (S.RETRY, "signal:x", None, False, Refusal.WAITING),
        (S.RETRY, "child:x", None, False, Refusal.WAITING),
        (S.RETRY, "approval:1", None, False, Refusal.WAITING),
        (S.WAITING_FOR_APPROVAL, "signal:x", None, False, Refusal.WAITING),
        (S.WAITING_FOR_APPROVAL, "approval:1", None, False, Refusal.WAITING),
        (S.WAITING_FOR_APPROVAL, "person:llm:x", None, False, None),
        (S.WAITING_FOR_APPROVAL, "person:llm:x", "READY", False, Refusal.DUE),
    ],
)
def test_only_jobs_waiting_for_their_next_attempt_can_be_retried(
    status: JobStatus,
    waiting_on: str | None,
    task_state: str | None,
    is_later: bool,
    found: Refusal | None,
) -> None:
    job = JobSituation(
        status=status, waiting_on=waiting_on, task_state=task_state, is_later=is_later
    )
    assert why_not_retry(job) is found
