"""The job whose code runs: every line that is logged meanwhile names it, its step and its trace."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import lru_cache
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.job import Claim
from cortex.domain.log_line import JobLog
from cortex.domain.tracing.traceparent import TraceParent

_claim: ContextVar[Claim | None] = ContextVar("claim", default=None)
_log: ContextVar[JobLog | None] = ContextVar("job log", default=None)
step: Final[ContextVar[str | None]] = ContextVar("step", default=None)
"""Key of the step that this code runs in."""


@attrs.frozen
class Origin:
    """The job, its log and the step that some code belongs to."""

    claim: Claim
    log: JobLog
    step: str | None


def enter(claim: Claim, log: JobLog | None = None) -> None:
    """From here on this task, and what it starts, runs a job, whose lines `log` keeps."""
    _claim.set(claim)
    _log.set(log)


def origin() -> Origin | None:
    """Return what this code belongs to; None: no job, or nobody keeps its lines."""
    log, claim = _log.get(), _claim.get()
    return None if log is None or claim is None else Origin(claim, log, step.get())


@contextmanager
def resumed(found: Origin) -> Generator[None, None, None]:
    """Run code in another thread as what it belongs to."""
    tokens = _claim.set(found.claim), _log.set(found.log), step.set(found.step)
    try:
        yield
    finally:
        _claim.reset(tokens[0])
        _log.reset(tokens[1])
        step.reset(tokens[2])


def is_job(context: Context) -> bool:
    """Return whether a task with this context runs code of a job."""
    return context.get(_claim) is not None


def claim() -> Claim | None:
    """Return the attempt that this code belongs to."""
    return _claim.get()


def job_id() -> UUID | None:
    """Return the job that this code belongs to."""
    found = _claim.get()
    return None if found is None else found.lease.job_id


def trace_id() -> str | None:
    """Return the trace of the job that this code belongs to."""
    found = _claim.get()
    if found is None:
        return None
    return _trace_id(found.lease.job_id, found.traceparent)


@lru_cache(256)  # a job may log ten thousand lines a second
def _trace_id(job_id: UUID, traceparent: str | None) -> str:
    return TraceParent.of_job(job_id, traceparent).trace_id.hex()
