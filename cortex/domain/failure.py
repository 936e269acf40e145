"""A failure as one value: its class decides what happens next."""

import errno
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidOutputError,
    NotFoundError,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
    UsageError,
)
from cortex.domain.redaction import clean_text
from cortex.domain.usage import Usage


class FailureClass(StrEnum):
    """The classification of a call's or a job's outcome."""

    VALID = "VALID"
    TRANSIENT_INFRA = "TRANSIENT_INFRA"
    TRANSIENT_APP = "TRANSIENT_APP"
    PERMANENT = "PERMANENT"
    INVALID_OUTPUT = "INVALID_OUTPUT"
    BUDGET = "BUDGET"

    @property
    def is_transient(self) -> bool:
        """The same call may succeed later; only these count as failures of a dependency."""
        return self in (FailureClass.TRANSIENT_INFRA, FailureClass.TRANSIENT_APP)


RAW_CHARS_MAX: Final = 65_536
"""The most that is kept of an invalid output."""


@frozen(kw_only=True)
class Failure:
    """One failure as recorded."""

    cls: FailureClass
    code: str
    """Stable, lower case: rate_limit, overloaded, connect_timeout, idle_timeout …"""
    message: str
    """One line for people."""
    retry_after_s: float | None = None
    """The pause that the server asked for, if any."""
    source: str | None = None
    """Name of what failed, like its breaker: llm:NAME, tool:NAME, http:HOST."""
    scope: str | None = None
    """Which limit fired, for a time-out: job, step, call, connect or idle."""
    limit_s: float | None = None
    is_escalated: bool = False
    """Only a person can mend it: bad credentials, a suspended account."""
    is_spent: bool = False
    """The tries that job code allows are spent: the job fails, although it may pass later."""
    raw: str | None = None
    """The text in place of a valid output, for INVALID_OUTPUT."""
    call_id: str | None = None
    """The model call that failed: its cost has the same."""
    is_paid: bool = False
    """Part of the answer had come, so that the call is paid for: however it broke off."""

    @property
    def is_rate_limit(self) -> bool:
        """The server reported too many requests."""
        return self.code == "rate_limit"

    def to_json(self) -> dict[str, Any]:
        """Return the recorded fields besides code and source; unknown ones are left out."""
        fields = {
            "class": self.cls.value,
            "message": self.message,
            "scope": self.scope,
            "limit_s": self.limit_s,
            "retry_after_s": self.retry_after_s,
            "escalated": self.is_escalated or None,
            "call_id": self.call_id,
            "raw": None if self.raw is None else clean_text(str(self.raw), limit=RAW_CHARS_MAX),
        }
        return {name: value for name, value in fields.items() if value is not None}


@frozen(kw_only=True)
class CallFailure:
    """The facts of a failed model call, not yet classified.

    `type` is the API's own name of the error if there is one, else one of our codes
    (connect_timeout, ended_early …), else http_<status>. `code` is the client's judgement, one of
    `CODES`; None if the status, or else the type, says it all. `status` is that of the HTTP
    response (200 when the error came inside the stream), None without one. `retry_after` is the
    header as sent, `retry_after_s` its meaning, and `should_retry` whether the server says that a
    retry can help. `limit_s` is the limit that fired.
    `usage` is what had been billed when it broke off, `has_content` whether a part of the answer
    had come, also from a server that counts nothing. `call_id` is the id under which its cost is
    booked.
    """

    model: str
    host: str
    type: str
    code: str | None = None
    status: int | None = None
    request_id: str | None = None
    retry_after: str | None = None
    retry_after_s: float | None = None
    should_retry: bool | None = None
    limit_s: float | None = None
    usage: Usage = field(factory=Usage)
    has_content: bool = False
    call_id: str | None = None
    protocol: str = "the model's API"
    """What the server was expected to speak."""
    address: str = "the model's base URL"
    """The setting that gives the server's address."""

    @property
    def source(self) -> str:
        return f"llm:{self.model}"

    def line(self, message: str) -> str:
        """Return one line with the model, the host, the problem and the request."""
        status = "" if self.status in (None, 200) else f"{self.status} "
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"model {self.model!r} at {self.host}: {status}{self.type}: {message}{request}"


_INFRA: Final = FailureClass.TRANSIENT_INFRA
_APP: Final = FailureClass.TRANSIENT_APP
_PERMANENT: Final = FailureClass.PERMANENT
_BUDGET: Final = FailureClass.BUDGET
_INVALID: Final = FailureClass.INVALID_OUTPUT

UNKNOWN: Final = "job_failed"
CANCELLED: Final = "cancelled"
FINAL: Final = "final"
CREDENTIALS_REFUSED: Final = frozenset({"authentication", "permission"})
"""Codes of errors that are announced as `auth.failed`; as in cortex.credentials_refused."""

SEVERITY: Final = (FailureClass.VALID, _INFRA, _APP, _INVALID, _BUDGET, _PERMANENT)
"""The member of an exception group that stands last here decides."""


@frozen
class Meaning:
    """The meaning of a code. `scope` names the limit that fired, for time-outs."""

    cls: FailureClass
    message: str
    scope: str | None = None
    is_escalated: bool = False


CLIENT_NOT_LOADED: Final = "client_not_loaded"
"""Code of a call that was never made, because of this process: it says nothing about the model."""
CODES: Final[dict[str, Meaning]] = {
    # HTTP statuses, and the errors of a model's API
    "rate_limit": Meaning(_APP, "too many requests (429)"),
    "overloaded": Meaning(_APP, "the model's servers are overloaded (529)"),
    "service_unavailable": Meaning(_APP, "the service is temporarily unavailable (503)"),
    "request_timeout": Meaning(_APP, "the server waited too long for the request (408)"),
    "api_error": Meaning(_INFRA, "the server failed (500)"),
    "bad_gateway": Meaning(_INFRA, "a proxy got an invalid answer (502)"),
    "gateway_timeout": Meaning(_INFRA, "a proxy got no answer in time (504)"),
    "server_error": Meaning(_INFRA, "any other status from 500 to 599"),
    "billing": Meaning(
        _BUDGET,
        "the account has no credit left, or reached its spending limit (402)",
        is_escalated=True,
    ),
    "authentication": Meaning(_PERMANENT, "no valid credentials (401)", is_escalated=True),
    "permission": Meaning(_PERMANENT, "credentials without this right (403)", is_escalated=True),
    "account_suspended": Meaning(_PERMANENT, "the account is on hold", is_escalated=True),
    "invalid_request": Meaning(_PERMANENT, "the request is invalid (400, 422)"),
    "not_found": Meaning(_PERMANENT, "the resource does not exist (404)"),
    "conflict": Meaning(_PERMANENT, "the present state does not permit it (409)"),
    "prompt_too_long": Meaning(_PERMANENT, "the conversation is too long for the model (400)"),
    "request_too_large": Meaning(_PERMANENT, "the request is too long (413)"),
    "too_early": Meaning(_PERMANENT, "the server does not take it before the handshake ends (425)"),
    "refused": Meaning(_PERMANENT, "any other status from 400 to 499"),
    "unexpected_status": Meaning(_PERMANENT, "a status from 100 to 199 or from 300 to 399"),
    # a model's answer
    "ended_early": Meaning(_INFRA, "the answer ended early"),
    "malformed_answer": Meaning(_INFRA, "the answer violates the protocol"),
    "not_a_stream": Meaning(_INFRA, "another server answered: a web page, a proxy"),
    "not_messages_api": Meaning(
        _PERMANENT, "two answers could not be read: the server does not speak the model's API"
    ),
    "breaker_open": Meaning(_APP, "the breaker of the model is open"),
    "model_refused": Meaning(_PERMANENT, "the model, or a filter of its API, refused to answer"),
    "model_not_set_up": Meaning(_PERMANENT, "the pod has no key or no package for the model"),
    "batch_failed": Meaning(_APP, "a batch has no answer to the call, which is made directly"),
    "unfit_fallback": Meaning(_PERMANENT, "the model cannot take what the request contains"),
    "redirected": Meaning(_PERMANENT, "the model's address leads to another host"),
    # time-outs
    "connect_timeout": Meaning(_INFRA, "no connection in time", scope="connect"),
    "total_timeout": Meaning(_APP, "no complete answer in time", scope="call"),
    CLIENT_NOT_LOADED: Meaning(_INFRA, "the model's client was not imported in time", scope="call"),
    "idle_timeout": Meaning(_APP, "no further content in time", scope="idle"),
    "read_timeout": Meaning(_APP, "nothing to read in time", scope="idle"),
    "write_timeout": Meaning(_APP, "the request could not be sent in time", scope="call"),
    "timed_out": Meaning(_APP, "any other time-out"),
    # network and operating system
    "connection_refused": Meaning(_INFRA, "no server listens there"),
    "connection_reset": Meaning(_INFRA, "the other side cut the connection"),
    "connection_aborted": Meaning(_INFRA, "the local system cut the connection"),
    "broken_pipe": Meaning(_INFRA, "the other side closed its end"),
    "connection_timed_out": Meaning(_INFRA, "the other side's system does not answer"),
    "network_unreachable": Meaning(_INFRA, "no route to that network"),
    "host_unreachable": Meaning(_INFRA, "no route to that host"),
    "connection_failed": Meaning(_INFRA, "no connection for another reason"),
    "connection_lost": Meaning(_INFRA, "the connection broke in use"),
    "tls_failed": Meaning(_INFRA, "no agreement on encryption, or a bad certificate"),
    "host_lookup_failed": Meaning(_INFRA, "the name service does not answer"),
    "host_unknown": Meaning(_PERMANENT, "there is no host of that name"),
    "permission_denied": Meaning(_PERMANENT, "the system does not permit it"),
    "file_not_found": Meaning(_PERMANENT, "no such file"),
    # Postgres
    "database_lost": Meaning(_INFRA, "the connection to Postgres broke, or it shut down"),
    "database_busy": Meaning(_INFRA, "serialisation failure, deadlock, lock or statement time-out"),
    "database_full": Meaning(_INFRA, "out of connections, memory or disk"),
    "database_refused": Meaning(_PERMANENT, "constraint, value or statement refused by Postgres"),
    "database_forbidden": Meaning(
        _PERMANENT, "wrong password or missing grant in Postgres", is_escalated=True
    ),
    # trio
    "resource_busy": Meaning(_INFRA, "two tasks used one connection at once"),
    "resource_closed": Meaning(_INFRA, "a connection was used after it was closed here"),
    # job code
    "asyncio_called": Meaning(_PERMANENT, "an asyncio call: jobs run on trio"),
    FINAL: Meaning(_PERMANENT, "an exception that the job type names in `final`"),
    CANCELLED: Meaning(_INFRA, "cancelled from outside; the limit that did it says more"),
    UNKNOWN: Meaning(_INFRA, "anything else that a job's code raises"),
}
"""The meaning of each code. Errors of our own keep their own codes, classified by `FAMILIES`."""

FAMILIES: Final[tuple[tuple[type[CortexError], Meaning], ...]] = (
    (UnavailableError, Meaning(_INFRA, "a dependency does not answer")),
    (TransientError, Meaning(_APP, "a transient failure")),
    (
        TimedOutError,
        Meaning(
            _APP,
            "a limit fired; TRANSIENT_INFRA when its scope is connect, PERMANENT when it is signal",
        ),
    ),
    (InvalidOutputError, Meaning(_INVALID, "the output does not fit the declared type")),
    (ForbiddenError, Meaning(_PERMANENT, "not allowed", is_escalated=True)),
    (RejectedError, Meaning(_PERMANENT, "it can never succeed")),
    (UsageError, Meaning(_PERMANENT, "the call is wrong")),
    (NotFoundError, Meaning(_PERMANENT, "it does not exist")),
    (ConflictError, Meaning(_PERMANENT, "another caller was first")),
    (CortexError, Meaning(_INFRA, "any other")),
)
"""Our own errors: the first family that fits."""

STATUSES: Final[dict[int, str]] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "request_timeout",
    409: "conflict",
    413: "request_too_large",
    422: "invalid_request",
    425: "too_early",
    429: "rate_limit",
    500: "api_error",
    502: "bad_gateway",
    503: "service_unavailable",
    504: "gateway_timeout",
    529: "overloaded",
}
STATUS_FAMILIES: Final[dict[int, str]] = {
    1: "unexpected_status",
    3: "unexpected_status",
    4: "refused",
    5: "server_error",
}
"""By the first digit, for statuses without a row of their own. 2xx is no failure."""

PROMPT_TOO_LONG: Final = "prompt_too_long"
UNREADABLE: Final = frozenset({"malformed_answer", "not_a_stream"})
"""Codes of answers of a server that does not speak the model's API, or of one that is broken."""

ERRNOS: Final[dict[int, str]] = {
    errno.ECONNREFUSED: "connection_refused",
    errno.ECONNRESET: "connection_reset",
    errno.ECONNABORTED: "connection_aborted",
    errno.EPIPE: "broken_pipe",
    errno.ETIMEDOUT: "connection_timed_out",
    errno.ENETUNREACH: "network_unreachable",
    errno.ENETDOWN: "network_unreachable",
    errno.EHOSTUNREACH: "host_unreachable",
    errno.EHOSTDOWN: "host_unreachable",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.ENOENT: "file_not_found",
}

LOOKUPS: Final[dict[int, str]] = {
    -2: "host_unknown",  # EAI_NONAME with Linux's C libraries
    -5: "host_unknown",  # EAI_NODATA
    7: "host_unknown",  # EAI_NODATA of macOS and the BSDs
    8: "host_unknown",  # EAI_NONAME
}
"""Errors of getaddrinfo; all others, EAI_AGAIN first, are "host_lookup_failed"."""

SQLSTATES: Final[dict[str, str]] = {
    "08": "database_lost",
    "40": "database_busy",
    "53": "database_full",
    "57": "database_lost",
    "57014": "database_busy",  # query_canceled: statement_timeout
    "55P03": "database_busy",  # lock_not_available
    "0A": "database_refused",
    "21": "database_refused",
    "22": "database_refused",
    "23": "database_refused",
    "28": "database_forbidden",
    "3D": "database_refused",
    "3F": "database_refused",
    "42": "database_refused",
    "42501": "database_forbidden",  # insufficient_privilege
    "44": "database_refused",
    "54": "database_refused",
    "P0": "database_refused",
}
"""A whole SQLSTATE, or the class named by its first two characters."""

_HTTP: Final[dict[str, str]] = {
    "ConnectTimeout": "connect_timeout",
    "PoolTimeout": "connect_timeout",
    "ReadTimeout": "read_timeout",
    "WriteTimeout": "write_timeout",
    "TimeoutException": "timed_out",
    "ConnectError": "connection_failed",
    "ProxyError": "connection_failed",
    "NetworkError": "connection_lost",
    "RemoteProtocolError": "connection_lost",
    "LocalProtocolError": "invalid_request",
    "UnsupportedProtocol": "invalid_request",
    "InvalidURL": "invalid_request",
    "TooManyRedirects": "unexpected_status",
    "DecodingError": "malformed_answer",
    "SSEError": "malformed_answer",
}
HTTP_CLIENTS: Final = ("httpx2", "httpcore2", "httpx", "httpcore")

KINDS: Final[dict[str, str]] = {
    **{f"{client}.{kind}": code for client in HTTP_CLIENTS for kind, code in _HTTP.items()},
    "asyncpg.DataError": "database_refused",
    "asyncpg.ClientConfigurationError": "database_refused",
    "asyncpg.UnsupportedClientFeatureError": "database_refused",
    "asyncpg.UnsupportedServerFeatureError": "database_refused",
    "asyncpg.InterfaceError": "database_lost",
    "asyncpg.InternalClientError": "database_lost",
    "trio.TooSlowError": "timed_out",
    "trio.BrokenResourceError": "connection_lost",
    "trio.EndOfChannel": "connection_lost",
    "trio.ClosedResourceError": "resource_closed",
    "trio.BusyResourceError": "resource_busy",
    "trio.Cancelled": CANCELLED,
    "asyncio.CancelledError": CANCELLED,
    "ssl.SSLError": "tls_failed",
    "socket.gaierror": "host_lookup_failed",
    "builtins.TimeoutError": "timed_out",
    "builtins.ConnectionRefusedError": "connection_refused",
    "builtins.ConnectionResetError": "connection_reset",
    "builtins.ConnectionAbortedError": "connection_aborted",
    "builtins.BrokenPipeError": "broken_pipe",
    "builtins.ConnectionError": "connection_lost",
    "builtins.PermissionError": "permission_denied",
    "builtins.FileNotFoundError": "file_not_found",
}
"""By package and name of the class, or of the nearest one above it that has a row."""

WRAPPERS: Final = frozenset(
    {
        "builtins.OSError",
        *(f"{client}.ConnectError" for client in HTTP_CLIENTS),
    }
)
"""Unspecific classes: if their cause is more specific, it decides."""


@frozen(kw_only=True)
class LibraryErrors:
    """The meaning of a library's own errors, given by the client that is built on the library."""

    package: str
    kinds: Mapping[str, str]
    """Codes by the name of the class, like `KINDS` without the package."""
    wrappers: frozenset[str] = frozenset()
    """Names of unspecific classes, like `WRAPPERS`."""
    code_of: Callable[[BaseException], str | None]
    """Returns the code of an error that says more than its HTTP status; None: it does not."""
    pause_s: Callable[[BaseException, datetime], float | None]
    """Returns the seconds that a response asks for by other means than Retry-After."""
