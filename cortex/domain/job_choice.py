"""Which of many jobs an act of a person would change, and why not the others."""

from enum import Enum
from typing import Final

import attrs

from cortex.domain.job import JobStatus
from cortex.domain.waiting import PERSON

UNFINISHED: Final = tuple(status for status in JobStatus if not status.is_terminal)

HEIR: Final = "a new job goes on from its last checkpoint"
HEIRS: Final = "each goes on in a new job, from its last checkpoint"
"""What a retry of failed jobs is, for people who are asked."""


class WhyNot(Enum):
    """Why a job stays as it is; the value follows their number: `3 had ended`."""

    ENDED = "had ended"
    RUNNING = "running just now"
    WAITING = "waiting for something else"
    UNTRIED = "not tried yet"
    DUE = "due already"
    SETTLED = "retried or discarded before"
    HOPELESS = "would fail the same way"
    TOO_LARGE = "too large to go on from"
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
    letter: "LetterStanding | None" = None
    """Its dead letter, if it has one."""


@attrs.frozen(kw_only=True)
class LetterStanding:
    """How the dead letter of a failed job stands towards a retry."""

    is_settled: bool
    is_hopeless: bool
    """Another try could only fail in the same way."""


def why_not_cancel(status: JobStatus) -> WhyNot | None:
    """Tell why a job cannot be cancelled; None if it can."""
    return WhyNot.ENDED if status.is_terminal else None


def why_not_retry(job: JobStanding) -> WhyNot | None:
    """Return why a job cannot be tried again; None if it can, a failed one in a new job."""
    is_between = job.status in (JobStatus.RUNNING, JobStatus.RETRY)
    if job.status is JobStatus.FAILED and job.letter is not None:
        if job.letter.is_settled:
            return WhyNot.SETTLED
        return WhyNot.HOPELESS if job.letter.is_hopeless else None
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
