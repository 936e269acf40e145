"""The job whose code runs: every line that is logged meanwhile names it and its trace."""

from contextvars import Context, ContextVar
from uuid import UUID

from cortex.domain.job import Claim
from cortex.domain.tracing.traceparent import TraceParent

_claim: ContextVar[Claim | None] = ContextVar("claim", default=None)


def enter(claim: Claim) -> None:
    """From here on this task, and what it starts, runs a job."""
    _claim.set(claim)


def is_job(context: Context) -> bool:
    """Return whether a task with this context runs code of a job."""
    return context.get(_claim) is not None


def job_id() -> UUID | None:
    """Return the job that this code belongs to."""
    claim = _claim.get()
    return None if claim is None else claim.lease.job_id


def job() -> tuple[str, str] | None:
    """Return the id and the type of the job that this code belongs to."""
    claim = _claim.get()
    return None if claim is None else (str(claim.lease.job_id), claim.type)


def trace_id() -> str | None:
    """Return the trace of the job that this code belongs to."""
    claim = _claim.get()
    if claim is None:
        return None
    return TraceParent.of_job(claim.lease.job_id, claim.traceparent).trace_id.hex()
