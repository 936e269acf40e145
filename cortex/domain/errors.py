"""Errors that reach people: each names the thing, its value and the way out.

Four families, told apart by what the caller should do next:

* `UsageError`: the call is off; change it.
* `UnavailableError`: nothing is wrong with the call; try again later.
* `RejectedError`: it can never succeed as it stands; do not retry.
* `DivergedError`: job code no longer matches its own record; a rejection of its own.

`LeaseLost` is control flow, not a failure: it derives from `BaseException`, so that a job's
`except Exception` cannot swallow it.
"""

from typing import ClassVar


class CortexError(Exception):
    """Something a person has to read.

    `message` is one line without a trailing full stop, `hint` says the way out.
    `code` is stable: scripts and the documentation may rely on it.
    `exit_code` is what the command line ends with.
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


class NotFoundError(CortexError):
    """What the caller named does not exist."""

    code = "not_found"
    exit_code = 3


class ForbiddenError(CortexError):
    """The caller may not do this: wrong password, missing grant or missing role."""

    code = "forbidden"
    exit_code = 4


class ConflictError(CortexError):
    """Somebody else was first, or the state does not allow it any more."""

    code = "conflict"
    exit_code = 5


class TimedOutError(CortexError):
    """The wait ended before what was waited for."""

    code = "timed_out"
    exit_code = 7


class UnavailableError(CortexError):
    """A dependency does not answer; the same call may succeed later."""

    code = "unavailable"


class OutcomeUnknownError(UnavailableError):
    """The connection broke after COMMIT may have been sent: the write must be asked for again."""

    code = "outcome_unknown"


class SchemaError(CortexError):
    """The database's schema does not fit this version of Cortex."""

    code = "schema"


class RejectedError(CortexError):
    """It can never succeed as it stands; retrying would repeat the failure."""

    code = "rejected"


class InvalidValueError(RejectedError):
    """A value that Postgres or JSON cannot hold: wrong type, too large, too deep, NaN, NUL."""

    code = "invalid_value"
    exit_code = 2


class DivergedError(RejectedError):
    """Job code asked for a step that differs from the one it recorded under the same key."""

    code = "diverged"


class LeaseLost(BaseException):
    """Another attempt owns the job now: this one must stop and touch nothing more."""
