"""Every row of the classification, on the errors that the libraries really raise."""

import asyncio
import errno
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import attrs
import httpx2
import pytest
import trio

from cortex.agent.models import anthropic_errors
from cortex.domain import errors, failure
from cortex.domain.classification import class_of_status, classify, describe, failure_of
from cortex.domain.failure import CODES, SEVERITY, CallFailure, Failure, FailureClass
from cortex.domain.redaction import TEXT_MAX

VALID = FailureClass.VALID
INFRA = FailureClass.TRANSIENT_INFRA
APP = FailureClass.TRANSIENT_APP
PERMANENT = FailureClass.PERMANENT
INVALID = FailureClass.INVALID_OUTPUT
BUDGET = FailureClass.BUDGET


def chained(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


def answered(status: int, **headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "http://example.org")
    response = httpx2.Response(
        status, request=request, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )
    return httpx2.HTTPStatusError("told", request=request, response=response)


def a_call(type_: str, *, status: int | None = None, cause: str | None = None) -> CallFailure:
    """As the client of the Messages API describes it."""
    code = None
    if status is not None:
        code = anthropic_errors.code_of(status, type_=type_, cause=cause)
    return CallFailure(model="m", host="h", type=type_, status=status, code=code)


class CallError(Exception):
    def __init__(self, failure: object) -> None:
        self.failure = failure


# --- the row of HTTP statuses

STATUSES = [
    *((status, VALID) for status in (200, 201, 204, 299)),
    *((status, APP) for status in (408, 429, 503, 529)),
    *((status, INFRA) for status in (500, 501, 502, 504, 507, 520, 599)),
    (402, BUDGET),
    *((status, PERMANENT) for status in (400, 401, 403, 404, 405, 409, 410, 413, 418, 422, 499)),
    *((status, PERMANENT) for status in (100, 101, 300, 301, 304, 307)),
]


@pytest.mark.parametrize("status, expected", STATUSES)
def test_http_status_is_classified(status: int, expected: FailureClass) -> None:
    assert class_of_status(status) is expected
    # An error is never VALID, whatever status it carries.
    assert classify(answered(status)) is (INFRA if expected is VALID else expected)


@pytest.mark.parametrize("status", [-1, 0, 42, 600, 999])
def test_invalid_status_is_an_infrastructure_error(status: int) -> None:
    assert class_of_status(status) is INFRA


@pytest.mark.parametrize("status", [401, 402, 403])
def test_trouble_with_the_account_is_for_a_person_at_once(status: int) -> None:
    assert failure_of(answered(status)).is_escalated
    assert not failure_of(answered(404)).is_escalated


def test_retry_after_is_read_in_every_form() -> None:
    sent, due = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:40 GMT"
    now = datetime(2015, 10, 21, 7, 28, 30, tzinfo=UTC)
    assert failure_of(answered(429, retry_after="17")).retry_after_s == 17
    assert failure_of(answered(429, retry_after=due, date=sent)).retry_after_s == 40
    assert failure_of(answered(503, retry_after=due), now=now).retry_after_s == 10
    assert failure_of(answered(503, retry_after="soon")).retry_after_s == 60
    assert failure_of(answered(503)).retry_after_s is None
    assert failure_of(answered(503, retry_after_ms="250")).retry_after_s == 0.25
    assert failure_of(answered(429)).is_rate_limit
    assert not failure_of(answered(503)).is_rate_limit


# --- the row of a model's API


def test_a_server_decides_whether_a_retry_can_help() -> None:
    for status, says, cls in (
        (429, "false", PERMANENT),
        (500, "false", PERMANENT),
        (400, "true", APP),
        (400, "perhaps", PERMANENT),
        (500, "true", INFRA),
        (402, "true", BUDGET),
    ):
        failure = failure_of(answered(status, x_should_retry=says))
        assert failure.cls is cls
        facts = attrs.evolve(
            a_call("x", status=status), should_retry={"true": True, "false": False}.get(says)
        )
        assert failure_of(CallError(facts)).cls is cls


@pytest.mark.parametrize(
    "type_, code, expected",
    [
        ("overloaded_error", "overloaded", APP),
        ("rate_limit_error", "rate_limit", APP),
        ("api_error", "api_error", INFRA),
        ("timeout_error", "gateway_timeout", INFRA),
        ("invalid_request_error", "invalid_request", PERMANENT),
        ("authentication_error", "authentication", PERMANENT),
        ("permission_error", "permission", PERMANENT),
        ("not_found_error", "not_found", PERMANENT),
        ("request_too_large", "request_too_large", PERMANENT),
        ("billing_error", "billing", BUDGET),
        ("error_of_the_future", "api_error", INFRA),
        ("http_200", "api_error", INFRA),
    ],
)
def test_an_error_inside_a_stream_is_judged_by_its_own_type(
    type_: str, code: str, expected: FailureClass
) -> None:
    failure = failure_of(CallError(a_call(type_, status=200)))
    assert (failure.code, failure.cls, failure.source) == (code, expected, "llm:m")


@pytest.mark.parametrize(
    "type_, scope, expected",
    [
        ("connect_timeout", "connect", INFRA),
        ("total_timeout", "call", APP),
        ("client_not_loaded", "call", INFRA),
        ("idle_timeout", "idle", APP),
        ("connection_refused", None, INFRA),
        ("connection_lost", None, INFRA),
        ("ended_early", None, INFRA),
        ("malformed_answer", None, INFRA),
        ("not_a_stream", None, INFRA),
        ("host_unknown", None, PERMANENT),
    ],
)
def test_call_error_without_a_status_is_classified_by_its_type(
    type_: str, scope: str | None, expected: FailureClass
) -> None:
    failure = failure_of(CallError(a_call(type_)))
    assert (failure.code, failure.scope, failure.cls) == (type_, scope, expected)


def test_a_status_beats_a_type_but_not_a_bill() -> None:
    def code(type_: str, status: int, cause: str | None = None) -> str:
        return failure_of(CallError(a_call(type_, status=status, cause=cause))).code

    assert code("overloaded_error", 400) == "invalid_request"
    assert code("billing_error", 403) == "billing"
    assert code("rate_limit_error", 429, "enforced_spend_limit_reached") == "billing"
    assert code("rate_limit_error", 429, "ramp_limit_exceeded") == "rate_limit"
    assert code("invalid_request_error", 400, "organization_on_hold") == "account_suspended"


def test_classified_failure_of_an_error_is_kept() -> None:
    judged = Failure(cls=BUDGET, code="mine", message="x")
    assert failure_of(CallError(judged)) is judged
    assert failure_of(CallError("text")).code == "job_failed"


# --- the row of the operating system and the network


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server


def refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        socket.create_connection(closed.getsockname(), timeout=10)


def reset() -> None:
    with listening() as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        client.recv(1)


def broken_pipe() -> None:
    reading, writing = socket.socketpair()
    with writing:
        reading.close()
        writing.send(b"x")


def silent() -> None:
    with listening() as server, socket.create_connection(server.getsockname()) as client:
        client.settimeout(0.01)
        client.recv(1)


def unresolved() -> None:
    socket.getaddrinfo("127.0.0.1", "no-such-service")


def no_host() -> None:
    socket.getaddrinfo("not a number", 1, flags=socket.AI_NUMERICHOST)


def no_file() -> None:
    os.stat("/no/such/file")  # noqa: PTH116


@contextmanager
def answering(server: socket.socket, answer: Callable[[socket.socket], object]) -> Iterator[None]:
    """Takes one connection in a thread, lets `answer` use it, and closes it."""

    def answer_one() -> None:
        peer, _ = server.accept()
        with peer:
            peer.settimeout(10)
            answer(peer)

    thread = threading.Thread(target=answer_one)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)


def no_tls() -> None:
    def answer(peer: socket.socket) -> None:
        peer.recv(65_536)
        peer.sendall(b"not TLS at all")

    with (
        listening() as server,
        answering(server, answer),
        socket.create_connection(server.getsockname()) as client,
    ):
        ssl.create_default_context().wrap_socket(client, server_hostname="localhost")


def trio_refused() -> None:
    async def connect() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            await trio.open_tcp_stream(*closed.getsockname())

    trio.run(connect)


def web_refused() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with httpx2.Client(trust_env=False) as client:
            client.get(f"http://127.0.0.1:{closed.getsockname()[1]}")


def web_silent() -> None:
    with listening() as server, httpx2.Client(trust_env=False) as client:
        port = server.getsockname()[1]
        client.get(f"http://127.0.0.1:{port}", timeout=httpx2.Timeout(10, read=0.01))


def web_reset() -> None:
    def hang_up(peer: socket.socket) -> None:
        peer.recv(1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        listening() as server,
        httpx2.Client(trust_env=False) as client,
        answering(server, hang_up),
    ):
        client.get(f"http://127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize(
    "happens, code, expected",
    [
        (refused, "connection_refused", INFRA),
        (reset, "connection_reset", INFRA),
        (broken_pipe, "broken_pipe", INFRA),
        (silent, "timed_out", APP),
        (unresolved, "host_lookup_failed", INFRA),
        (no_host, "host_unknown", PERMANENT),
        (no_file, "file_not_found", PERMANENT),
        (no_tls, "tls_failed", INFRA),
        (trio_refused, "connection_refused", INFRA),
        (web_refused, "connection_refused", INFRA),
        (web_silent, "read_timeout", APP),
        (web_reset, "connection_lost", INFRA),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_real_system_errors_are_classified(
    happens: Callable[[], None], code: str, expected: FailureClass
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- each raises its own
        happens()
    failure = failure_of(caught.value)
    assert (failure.code, failure.cls) == (code, expected)


@pytest.mark.parametrize(
    "number, expected",
    [
        *((number, INFRA) for number in (errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED)),
        *((number, INFRA) for number in (errno.EPIPE, errno.ETIMEDOUT, errno.ENETUNREACH)),
        *((number, INFRA) for number in (errno.EHOSTUNREACH, errno.EIO, errno.EMFILE, 9999)),
        *((number, PERMANENT) for number in (errno.EACCES, errno.EPERM, errno.ENOENT)),
    ],
    ids=lambda each: errno.errorcode.get(each, str(each)) if isinstance(each, int) else None,
)
def test_system_error_is_classified_by_number(number: int, expected: FailureClass) -> None:
    assert classify(OSError(number, os.strerror(9 if number > 200 else number))) is expected


@pytest.mark.parametrize(
    "code, expected",
    [
        (socket.EAI_NONAME, PERMANENT),
        (socket.EAI_NODATA, PERMANENT),
        (socket.EAI_AGAIN, INFRA),
        (socket.EAI_FAIL, INFRA),
    ],
)
def test_unresolvable_name_is_classified(code: int, expected: FailureClass) -> None:
    assert classify(socket.gaierror(code, "told")) is expected
    library = chained(httpx2.ConnectError("told"), socket.gaierror(code, "told"))
    assert classify(library) is expected


@pytest.mark.parametrize(
    "error, code, expected",
    [
        (TimeoutError(), "timed_out", APP),
        (TimeoutError(errno.ETIMEDOUT, "told"), "connection_timed_out", INFRA),
        (PermissionError("made by hand"), "permission_denied", PERMANENT),
        (ConnectionError("made by hand"), "connection_lost", INFRA),
        (OSError("made by hand"), "job_failed", INFRA),
        (ssl.SSLCertVerificationError(1, "expired"), "tls_failed", INFRA),
        (httpx2.ConnectTimeout("x"), "connect_timeout", INFRA),
        (httpx2.PoolTimeout("x"), "connect_timeout", INFRA),
        (httpx2.ReadTimeout("x"), "read_timeout", APP),
        (httpx2.WriteTimeout("x"), "write_timeout", APP),
        (httpx2.ConnectError("x"), "connection_failed", INFRA),
        (httpx2.ReadError("x"), "connection_lost", INFRA),
        (httpx2.RemoteProtocolError("x"), "connection_lost", INFRA),
        (httpx2.LocalProtocolError("x"), "invalid_request", PERMANENT),
        (httpx2.UnsupportedProtocol("x"), "invalid_request", PERMANENT),
        (httpx2.InvalidURL("x"), "invalid_request", PERMANENT),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_system_and_web_errors_by_class(
    error: Exception, code: str, expected: FailureClass
) -> None:
    failure = failure_of(error)
    assert (failure.code, failure.cls) == (code, expected)


# --- the rows of Postgres, of trio and of cancellation


@pytest.mark.parametrize(
    "error, expected",
    [
        (asyncpg.SerializationError("x"), INFRA),
        (asyncpg.DeadlockDetectedError("x"), INFRA),
        (asyncpg.LockNotAvailableError("x"), INFRA),
        (asyncpg.QueryCanceledError("x"), INFRA),
        (asyncpg.AdminShutdownError("x"), INFRA),
        (asyncpg.CrashShutdownError("x"), INFRA),
        (asyncpg.CannotConnectNowError("x"), INFRA),
        (asyncpg.TooManyConnectionsError("x"), INFRA),
        (asyncpg.DiskFullError("x"), INFRA),
        (asyncpg.ConnectionDoesNotExistError("x"), INFRA),
        (asyncpg.PostgresConnectionError("x"), INFRA),
        (asyncpg.InterfaceError("x"), INFRA),
        (asyncpg.InternalClientError("x"), INFRA),
        (asyncpg.UniqueViolationError("x"), PERMANENT),
        (asyncpg.ForeignKeyViolationError("x"), PERMANENT),
        (asyncpg.CheckViolationError("x"), PERMANENT),
        (asyncpg.DataError("x"), PERMANENT),
        (asyncpg.NumericValueOutOfRangeError("x"), PERMANENT),
        (asyncpg.UntranslatableCharacterError("x"), PERMANENT),
        (asyncpg.ProgramLimitExceededError("x"), PERMANENT),
        (asyncpg.PostgresSyntaxError("x"), PERMANENT),
        (asyncpg.UndefinedTableError("x"), PERMANENT),
        (asyncpg.RaiseError("x"), PERMANENT),
        (asyncpg.InsufficientPrivilegeError("x"), PERMANENT),
        (asyncpg.InvalidPasswordError("x"), PERMANENT),
        (asyncpg.ReadOnlySQLTransactionError("x"), INFRA),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_database_error_is_classified(error: Exception, expected: FailureClass) -> None:
    assert classify(error) is expected


def test_value_refused_by_the_driver_is_permanent() -> None:
    from asyncpg.exceptions._base import ClientConfigurationError, DataError  # noqa: PLC0415

    assert classify(DataError("x")) is PERMANENT
    assert classify(ClientConfigurationError("x")) is PERMANENT


def test_missing_rights_in_the_database_are_for_a_person() -> None:
    assert failure_of(asyncpg.InsufficientPrivilegeError("x")).is_escalated
    assert not failure_of(asyncpg.UniqueViolationError("x")).is_escalated


@pytest.mark.parametrize(
    "error, code, expected",
    [
        (trio.TooSlowError(), "timed_out", APP),
        (trio.BrokenResourceError(), "connection_lost", INFRA),
        (trio.EndOfChannel(), "connection_lost", INFRA),
        (trio.ClosedResourceError(), "resource_closed", INFRA),
        (trio.BusyResourceError(), "resource_busy", INFRA),
        (trio.WouldBlock(), "job_failed", INFRA),
        (trio.TrioInternalError(), "job_failed", INFRA),
        (asyncio.CancelledError(), "cancelled", INFRA),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else None,
)
def test_trio_error_is_classified(error: BaseException, code: str, expected: FailureClass) -> None:
    failure = failure_of(error)
    assert (failure.code, failure.cls) == (code, expected)


async def test_any_error_beside_a_cancellation_decides() -> None:
    cancelled: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            cancelled.append(error)
            raise
    assert failure_of(cancelled[0]).code == "cancelled"
    group = BaseExceptionGroup("g", [cancelled[0], ValueError("this one")])
    assert failure_of(group).message == "ValueError: this one"


@pytest.mark.parametrize(
    "scope, expected",
    [("connect", INFRA), ("call", APP), ("idle", APP), ("step", APP), ("job", APP), (None, APP)],
)
def test_a_time_out_is_judged_by_its_scope(scope: str | None, expected: FailureClass) -> None:
    failure = failure_of(errors.TimedOutError("slow", scope=scope, limit_s=3))
    assert (failure.cls, failure.scope, failure.limit_s) == (expected, scope, 3)


# --- our own


@pytest.mark.parametrize(
    "error, expected",
    [
        (errors.UnavailableError("x"), INFRA),
        (errors.OutcomeUnknownError("x"), INFRA),
        (errors.TransientError("x"), APP),
        (errors.RejectedError("x"), PERMANENT),
        (errors.InvalidValueError("x"), PERMANENT),
        (errors.DivergedError("x"), PERMANENT),
        (errors.UsageError("x"), PERMANENT),
        (errors.NotFoundError("x"), PERMANENT),
        (errors.ConflictError("x"), PERMANENT),
        (errors.ForbiddenError("x"), PERMANENT),
        (errors.InvalidOutputError("x", raw="{"), INVALID),
        (errors.SchemaError("x"), INFRA),
        (errors.CortexError("x"), INFRA),
    ],
    ids=lambda each: each.code if isinstance(each, errors.CortexError) else None,
)
def test_our_own_errors_keep_their_codes(error: errors.CortexError, expected: FailureClass) -> None:
    failure = failure_of(error)
    assert (failure.cls, failure.code, failure.message) == (expected, error.code, "x")


def test_details_of_our_own_errors_are_kept() -> None:
    assert failure_of(errors.TransientError("x", retry_after_s=7)).retry_after_s == 7
    assert failure_of(errors.InvalidOutputError("x", raw="half")).raw == "half"
    assert failure_of(errors.ForbiddenError("x")).is_escalated


class ForgetfulError(errors.TimedOutError):
    def __init__(self) -> None:
        pass


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def status_code(self) -> int:
        raise RuntimeError("no status")


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError(), SystemExit(3), UntellableError(), ZeroDivisionError()]
)
def test_anything_else_may_pass(error: BaseException) -> None:
    failure = failure_of(error)
    assert (failure.cls, failure.code) == (INFRA, "job_failed")
    assert failure.message.startswith(type(error).__name__)


def test_an_error_that_is_badly_made_is_judged_all_the_same() -> None:
    failure = failure_of(ForgetfulError())
    assert (failure.cls, failure.message) == (APP, "ForgetfulError")


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("two\nlines\tand  more"), "ValueError: two lines and more"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (errors.RejectedError("as it is"), "as it is"),
        (ValueError("a\0b\ud800c"), "ValueError: a\ufffdb\ufffdc"),
        (UntellableError(), "UntellableError"),
    ],
    ids=["lines", "key", "empty", "ours", "NUL", "untellable"],
)
def test_error_is_described_in_one_storable_line(error: Exception, line: str) -> None:
    assert describe(error) == line
    assert len(describe(ValueError("x" * 10_000))) == TEXT_MAX


# --- the tables themselves


def test_every_table_names_codes_that_have_a_meaning() -> None:
    tables: list[Mapping[Any, str]] = [
        failure.STATUSES,
        failure.STATUS_FAMILIES,
        anthropic_errors.TYPES,
        anthropic_errors.CAUSES,
        anthropic_errors.ERRORS.kinds,
        failure.ERRNOS,
        failure.LOOKUPS,
        failure.SQLSTATES,
        failure.KINDS,
    ]
    named = {code for table in tables for code in table.values()}
    assert named <= CODES.keys()
    assert VALID not in {meaning.cls for meaning in CODES.values()}
    assert set(SEVERITY) == set(FailureClass)


def test_a_code_of_both_tables_has_one_class() -> None:
    families = {family.code: meaning.cls for family, meaning in failure.FAMILIES}
    both = families.keys() & CODES.keys()
    assert {code: families[code] for code in both} == {code: CODES[code].cls for code in both}
