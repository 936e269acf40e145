"""The meaning of database errors: the only place that reads SQLSTATEs.

| SQLSTATE | meaning | becomes |
|---|---|---|
| 40001 40P01 55P03 | certainly rolled back | retried, then `UnavailableError` |
| 57014 | likewise; it took too long, or was cancelled | `UnavailableError` |
| 08… 57P…, driver, sockets | COMMIT may have been sent | `OutcomeUnknownError` |
| 25006 | a standby, or a former primary: nothing was written | `UnavailableError` |
| 25P03 25P04 | certainly rolled back by a timeout, with its session | `UnavailableError` |
| 53… 58… | server out of disk, memory or connections, or its disk fails | `UnavailableError` |
| 22… 54… | this value can never be stored | `InvalidValueError` |
| 23… P0001 P0002 | refused by the schema | `RejectedError`, `NotFoundError` |
| 28… 42501 | wrong password, missing grant | `ForbiddenError` |
| 3F000 42P01 42883 22023 (role) | the schema is missing, or a different one | `SchemaError` |
| ValueError on connecting | the address makes no sense | `UsageError` |
"""

import ssl
from collections.abc import Mapping
from typing import Final

import asyncpg

from cortex.domain.errors import (
    CapReachedError,
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidValueError,
    KeyReusedError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    SchemaError,
    Trouble,
    UnavailableError,
    UsageError,
)

ROLLED_BACK = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialisation failure, deadlock, lock timeout, query cancelled: nothing was written."""

LOCKED = "55P03"
"""Another session held a row or other lock for longer than the lock timeout."""

CANCELLED = "57014"
"""Cancelled by the server after the timeout, or by a person: only the message says which."""

ON_REQUEST = "user request"
"""In the message of a statement that a person cancelled. Servers in other languages use other
words; there it counts as taking too long."""

READ_ONLY = "25006"

OVERDUE = frozenset({"25P03", "25P04"})
"""The transaction was idle or open for too long: nothing was written, and the session is gone."""

SHORTAGES = {"53100": Trouble.DISK_FULL, "53300": Trouble.NO_CONNECTIONS}
"""Of class 53; its other codes are about memory, files and the like."""

QUEUE_HEAD = "task_queue_head"
"""The index by which one of several pods makes a task of a named queue ready; the others repeat."""

_OF_PAYLOADS = frozenset({"payload_size", "payload_fits", "limit_key"})
"""Constraints that refuse the value of a payload."""
_BY_CONSTRAINT: Final[Mapping[str | None, type[CortexError]]] = {
    "id_of_another_job": ConflictError,
    "key_of_another_request": KeyReusedError,
    "tenant_cap": CapReachedError,
    "singleton": ConflictError,
    "signal_to_ended_job": ConflictError,
    "signals_waiting": ConflictError,
}
"""A submit whose id names another job, whose idempotency key was used for another one, that is
beyond the cap of its tenant, or whose singleton has not ended; a signal that its job will not or
cannot take."""

_WAYS_OUT = {
    Trouble.DISK_FULL: "make room on the disk of the server",
    Trouble.NO_CONNECTIONS: "close others, or raise max_connections or the role's own limit",
}
"""Used when the server gives no hint."""

_NO_TLS: Final = "rejected SSL upgrade"
"""In the driver's message; it has no error of its own for that."""
_MIGRATE = "migrate it first: cortex migrate"


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the statement certainly changed nothing and may simply be sent again."""
    return isinstance(error, asyncpg.PostgresError) and (
        error.sqlstate in ROLLED_BACK or getattr(error, "constraint_name", None) == QUEUE_HEAD
    )


def is_locked(error: BaseException) -> bool:
    """Return whether the statement waited in vain for a lock of another session."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == LOCKED


def is_overdue(error: BaseException) -> bool:
    """Return whether the statement was ended because it took too long.

    Also accepts an error that this was translated to.
    """
    first = _first(error)
    return is_cancelled(first) and not _is_by_somebody(first)


def is_called_off(error: BaseException) -> bool:
    """Return whether a person cancelled the statement; also accepts a translated error."""
    return _is_by_somebody(_first(error))


def is_starting(error: BaseException) -> bool:
    """Return whether the server starts, recovers or shuts down; also accepts a translated error."""
    return isinstance(_first(error), asyncpg.CannotConnectNowError)


def _first(error: BaseException) -> BaseException:
    """The driver's error."""
    while isinstance(error, CortexError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_cancelled(error: BaseException) -> bool:
    """Return whether the statement was ended as it took too long, or by a person."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == CANCELLED


def _is_by_somebody(error: BaseException) -> bool:
    return is_cancelled(error) and ON_REQUEST in _line(error)


def is_read_only(error: BaseException) -> bool:
    """Return whether the server accepts no writes: a standby, or a former primary."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == READ_ONLY


def is_connection_loss(error: BaseException) -> bool:
    """Return whether the server or the network went away; a sent COMMIT may have happened."""
    return _is_loss(_server_error(error))


def _is_loss(error: BaseException) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return error.sqlstate[:2] == "08" or error.sqlstate[:3] == "57P"
    return isinstance(
        error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError
    )


def ends_session(error: BaseException) -> bool:
    """Return whether the connection is useless now, whatever happened to the statement."""
    is_fatal = getattr(error, "severity_en", None) in {"FATAL", "PANIC"}
    return is_fatal or _is_loss(error)


def _server_error(error: BaseException) -> BaseException:
    """The server's last error before it closed the connection, if it sent one."""
    last = error.__cause__
    is_closed = isinstance(error, asyncpg.ConnectionDoesNotExistError)
    if is_closed and isinstance(last, asyncpg.PostgresError) and last.sqlstate in OVERDUE:
        return last
    return error


def of_statement(error: Exception) -> CortexError:
    """Translate a statement's error; the caller chains the driver's error as the cause."""
    reported = _server_error(error)
    if isinstance(reported, asyncpg.PostgresError):
        return _of_server(reported)
    if isinstance(error, asyncpg.DataError | ValueError | OverflowError):
        return InvalidValueError(f"the database cannot hold this value: {_line(error)}")
    if is_connection_loss(error):
        return OutcomeUnknownError(
            f"the connection to the database broke: {_break(error)}",
            hint="it is tried again; is Postgres running?",
            trouble=Trouble.UNREACHABLE,
        )
    raise error


def unanswered(bound_s: float) -> OutcomeUnknownError:
    """Return the error of a call that was cut off at its bound."""
    return OutcomeUnknownError(
        f"the database did not answer within {bound_s:g} s",
        hint="it is tried again; is the network well?",
        trouble=Trouble.SILENT,
    )


def of_connect(error: Exception, *, target: str) -> CortexError:  # noqa: C901, PLR0911 -- a table
    """Translate an error of connecting to `target`; nothing was sent yet."""
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return NotFoundError(f"{target}: {_line(error)}", hint="create the database first")
    if isinstance(error, asyncpg.InvalidParameterValueError) and "role" in str(error):
        return SchemaError(f"{target} has no cortex schema yet", hint=_MIGRATE)
    if isinstance(error, asyncpg.PostgresError) and not is_connection_loss(error):
        translated = _of_server(error)
        text = f"{target}: {translated.message}"
        if isinstance(translated, UnavailableError):
            return UnavailableError(text, hint=translated.hint, trouble=translated.trouble)
        return type(translated)(text, hint=translated.hint)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return UnavailableError(
            f"no server at {target} takes writes",
            hint="is a standby still to be promoted?",
            trouble=Trouble.READ_ONLY,
        )
    if isinstance(error, ssl.SSLError):
        return UnavailableError(
            f"{target}: TLS failed: {_line(error)}", trouble=Trouble.UNREACHABLE
        )
    if isinstance(error, TimeoutError):
        return UnavailableError(
            f"{target} does not answer", hint="is the address right?", trouble=Trouble.SILENT
        )
    if isinstance(error, ValueError):
        # Its text may contain a part of the password: `int()` quotes what it could not read.
        is_safe = isinstance(error, asyncpg.ClientConfigurationError) and "URI" not in str(error)
        reason = f": {_line(error)}" if is_safe else ""
        return UsageError(f"{target} is not an address to connect to{reason}")
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return UnavailableError(
            f"{target} offers no TLS, which a server on another machine needs (sslmode=require)",
            hint="turn ssl on in the server, or accept that all is sent in the clear: "
            "add sslmode=disable to the address",
            trouble=Trouble.UNREACHABLE,
        )
    if is_connection_loss(error) or isinstance(error, OSError):
        return UnavailableError(
            f"cannot reach the database at {target}: {_break(error)}",
            hint="is Postgres running, and are host and port right?",
            trouble=Trouble.UNREACHABLE,
        )
    raise error


def _of_server(error: asyncpg.PostgresError) -> CortexError:  # noqa: C901, PLR0911 -- a table
    state = error.sqlstate
    message = _line(error)
    hint = getattr(error, "hint", None)
    if is_connection_loss(error):
        return OutcomeUnknownError(
            f"the database went away: {message}", trouble=Trouble.UNREACHABLE
        )
    if _is_by_somebody(error):
        text = f"somebody cancelled the statement in the database: {message}"
        return UnavailableError(text, hint="try again")
    if is_rolled_back(error):
        text = f"the database is busy: {message}"
        return UnavailableError(text, hint="try again", is_locked=is_locked(error))
    if state[:2] == "53":
        trouble = SHORTAGES.get(state, Trouble.OUT_OF_MEMORY)
        text = f"the database is short of resources: {message}"
        return UnavailableError(text, hint=hint or _WAYS_OUT.get(trouble), trouble=trouble)
    if state[:2] == "58":
        text = f"the database's own system fails: {message}"
        return UnavailableError(text, hint=hint, trouble=Trouble.UNREACHABLE)
    if state == "P0002":
        return NotFoundError(message, hint=hint)
    if state in {"3F000", "42P01", "42883", "42703"}:
        return SchemaError(
            f"the database does not have the expected schema: {message}", hint=_MIGRATE
        )
    if state[:2] == "28" or state == "42501":
        return ForbiddenError(message, hint=hint or "check user, password and grants")
    if state[:2] in {"22", "54"} or getattr(error, "constraint_name", "") in _OF_PAYLOADS:
        return InvalidValueError(message, hint=hint)
    if (kind := _BY_CONSTRAINT.get(getattr(error, "constraint_name", ""))) is not None:
        return kind(message, hint=hint)
    if state in OVERDUE:
        text = f"the server ended a transaction that took too long: {message}"
        return UnavailableError(text, hint="try again")
    if state[:2] == "25":
        text = f"the database does not take writes: {message}"
        return UnavailableError(text, trouble=Trouble.READ_ONLY if state == READ_ONLY else None)
    return RejectedError(message, hint=hint)


def _break(error: BaseException) -> str:
    """Describe how a connection broke, in our words where the driver's are about itself."""
    match error:
        case asyncpg.InternalClientError():
            return "in the middle of a message"
        case asyncpg.InterfaceError():
            return "it was closed"
        case TimeoutError():
            return "no answer in time"
        case OSError(strerror=str(text)) if text:
            return " ".join(text.split())
    return _line(error)


def _line(error: BaseException) -> str:
    # Of a server's error only the message: detail may quote rows, and the hint is separate.
    message = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    text = " ".join(str(message).split())
    return text or type(error).__name__
