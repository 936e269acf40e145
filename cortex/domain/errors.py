"""Errors that reach people: each names the thing, its value and the way out.

Four families, by what the caller should do next:

* `UsageError`: the call is wrong; change it.
* `UnavailableError`: nothing is wrong with the call; try again later.
* `RejectedError`: it can never succeed unchanged; do not retry.
* `DivergedError`: job code no longer matches its own record; a rejection of its own.

`LeaseLost` and `Suspended` are control flow, not failures: they derive from `BaseException`, so
that a job's `except Exception` cannot swallow them.
"""

from enum import StrEnum
from typing import ClassVar, Final
from uuid import UUID


class Trouble(StrEnum):
    """Why Postgres does not serve a call."""

    UNREACHABLE = "unreachable"
    """Connections are refused or cut: the server restarts, or is gone."""
    SILENT = "silent"
    """Connections are open, but no answer comes in time."""
    READ_ONLY = "read_only"
    """The server takes no writes: a standby, or a former primary."""
    DISK_FULL = "disk_full"
    OUT_OF_MEMORY = "out_of_memory"
    """Or out of another resource of its machine, such as open files."""
    NO_CONNECTIONS = "no_connections"

    @property
    def is_shortage(self) -> bool:
        """The server answers but lacks a resource: frequent calls would make that worse."""
        return self in _SHORTAGES


_SHORTAGES: Final = frozenset({Trouble.DISK_FULL, Trouble.OUT_OF_MEMORY, Trouble.NO_CONNECTIONS})


class CortexError(Exception):
    """An error that a person has to read.

    `message` is one line without a trailing full stop, `hint` says the way out. `code` is stable:
    scripts and the documentation may rely on it. `exit_code` is that of the command line.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = str(message)  # `raise RejectedError(error)` is what people write
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")


class UsageError(CortexError):
    """The call, the file or the setting is wrong and must be changed by its author."""

    code = "usage"
    exit_code = 2

    def with_way_out(self) -> "UsageError":
        """Return the error with its hint in the message: a job's record keeps no hint."""
        if self.hint is None:
            return self
        return type(self)(f"{self.message}: {self.hint}", hint=self.hint)


class KeyReusedError(UsageError):
    """The idempotency key was used for another request; each request needs a key of its own."""

    code = "key_reused"


class NotFoundError(CortexError):
    """The named thing does not exist."""

    code = "not_found"
    exit_code = 3


class ArchiveError(CortexError):
    """The copy of what retention is about to delete cannot be written; nothing is deleted."""

    code = "archive_failed"


class ForbiddenError(CortexError):
    """The caller may not do this: wrong password, missing grant or missing role."""

    code = "forbidden"
    exit_code = 4


class ConflictError(CortexError):
    """Another caller was first, or the state no longer permits it."""

    code = "conflict"
    exit_code = 5


class ExpiredError(ConflictError):
    """The deadline for this has passed."""

    code = "expired"
    exit_code = 7


class TimedOutError(CortexError):
    """The wait ended before the awaited event.

    `scope` names the limit that fired (job, step, call, connect, idle), `limit_s` its seconds.
    """

    code = "timed_out"
    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        scope: str | None = None,
        limit_s: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.scope = scope
        self.limit_s = limit_s


class UnavailableError(CortexError):
    """A dependency does not answer; the same call may succeed later.

    `trouble` is the database's trouble, if that is the cause. `is_locked`: the database is healthy,
    but another session holds a needed lock for longer than the call waits; nothing was written.
    """

    code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        trouble: Trouble | None = None,
        is_locked: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.trouble = trouble
        self.is_locked = is_locked


class TransientError(CortexError):
    """A transient failure: the job is tried again by its application retries."""

    code = "transient"

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after_s: float | None = None
    ) -> None:
        """`retry_after_s`: the earliest retry, as far as the job's policy permits."""
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class CapReachedError(TransientError):
    """The tenant has as many unfinished jobs, or bytes of payloads, as its cap permits.

    The same submit may succeed when some have ended.
    """

    code = "cap_reached"


class OutcomeUnknownError(UnavailableError):
    """The connection broke after COMMIT may have been sent: check whether the write happened."""

    code = "outcome_unknown"


class SchemaError(CortexError):
    """The database's schema does not fit this version of Cortex."""

    code = "schema"


class RejectedError(CortexError):
    """It can never succeed unchanged; retrying would repeat the failure."""

    code = "rejected"


class InvalidValueError(RejectedError):
    """A value that Postgres or JSON cannot represent: wrong type, too large, too deep, NaN, NUL."""

    code = "invalid_value"
    exit_code = 2


class InvalidSignalError(InvalidValueError):
    """A signal does not fit the type that the job receives; the step has consumed it.

    `payload`: its content, plain JSON.
    """

    code = "invalid_signal"

    def __init__(self, message: str, *, hint: str | None = None, payload: object = None) -> None:
        super().__init__(message, hint=hint)
        self.payload = payload


class JobFailedError(CortexError):
    """The awaited job has failed.

    `job_id` names it; `error_code` and `error_class` are those of its failure.
    """

    code = "job_failed"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        job_id: UUID | None = None,
        error_code: str | None = None,
        error_class: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id
        self.error_code = error_code
        self.error_class = error_class


class JobCancelledError(CortexError):
    """The awaited job was cancelled. `by` and `reason` say who did it and why."""

    code = "job_cancelled"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        job_id: UUID | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id
        self.by = by
        self.reason = reason


class ChildFailedError(RejectedError):
    """A job that this one submitted has failed, or was cancelled; it is not tried again.

    `job_id` names it, `status` is its state. `error_code`, `error_class` and `error` are those of
    its dead letter; `by` and `reason` say who cancelled it and why.
    """

    code = "child_failed"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        job_id: UUID | None = None,
        status: str = "FAILED",
        error: str | None = None,
        error_code: str | None = None,
        error_class: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id
        self.status = status
        self.error = error
        self.error_code = error_code
        self.error_class = error_class
        self.by = by
        self.reason = reason


class InvalidOutputError(CortexError):
    """A model or a tool returned what its declared type does not allow; the raw text is kept."""

    code = "invalid_output"

    def __init__(self, message: str, *, raw: str, hint: str | None = None) -> None:
        """`raw`: the result, as text."""
        super().__init__(message, hint=hint)
        self.raw = raw


class DivergedError(RejectedError):
    """Job code requested a step that differs from the one recorded under the same key."""

    code = "diverged"
    is_clean: bool = False
    """The attempt has done nothing new: other code may still take the job from where it is."""


class MisfitKind(StrEnum):
    """The part of a job that this code cannot take."""

    TYPE = "type"
    ARGUMENTS = "arguments"
    STEP = "step"
    TOOL = "tool"
    AGENT = "agent"
    FLOW = "flow"
    CONFIG = "config"


class UnfitCodeError(RejectedError):
    """This code cannot take the job, other code may: the job is handed back, and does not fail."""

    code = "unfit"
    kind: MisfitKind

    def __init__(self, message: str, *, kind: MisfitKind, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class DeniedError(RejectedError):
    """A person denied it: it was not executed. `by` and `reason` say who and why."""

    code = "denied"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.by = by
        self.reason = reason


class ApprovalExpiredError(RejectedError):
    """No decision came in time: it was not executed, and not denied."""

    code = "approval_expired"
