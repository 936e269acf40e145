"""Which of many jobs an act of a person would change, and why not the others."""

from enum import Enum
from typing import Final

import attrs

from cortex.domain.job import JobStatus
from cortex.domain.why import PERSON

UNFINISHED: Final = tuple(status for status in JobStatus if not status.is_terminal)


class WhyNot(Enum):
    """Why a job stays as it is; the value follows their number: `3 had ended`."""

    ENDED = "had ended"
    RUNNING = "running just now"
    WAITING = "waiting for something else"
    UNTRIED = "not tried yet"
    DUE = "due already"
    GONE = "not there"


@attrs.frozen(kw_only=True)
class JobStanding:
    """How a job stands towards being tried again at once."""

    status: JobStatus
    waiting_on: str | None
    task_state: str | None
    """None: it has no task."""
    is_later: bool
    """Its task is due in the future."""


def why_not_cancel(status: JobStatus) -> WhyNot | None:
    """Tell why a job cannot be cancelled; None if it can."""
    return WhyNot.ENDED if status.is_terminal else None


def why_not_retry(job: JobStanding) -> WhyNot | None:
    """Tell why a job cannot be tried again at once; None if it can."""
    is_between = job.status in (JobStatus.RUNNING, JobStatus.RETRY)
    if job.status.is_terminal:
        found = WhyNot.ENDED
    elif job.status is JobStatus.PENDING:
        found = WhyNot.UNTRIED
    elif job.task_state == "LOCKED":
        found = WhyNot.RUNNING
    elif job.task_state is not None:
        return None if is_between and job.is_later else WhyNot.DUE
    else:
        is_for_person = (job.waiting_on or "").startswith(PERSON)
        return None if job.status is JobStatus.RETRY or is_for_person else WhyNot.WAITING
    return found
