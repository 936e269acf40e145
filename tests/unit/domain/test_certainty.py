"""Which failures prove that a call changed nothing outside."""

import errno
import os
import socket

import httpx2
import pytest

from cortex.agent.tools.tool import ToolInputError
from cortex.domain.classification import failure_of
from cortex.domain.effect import (
    MISFIT,
    UNCERTAIN,
    NotSentError,
    UnsettledError,
    changed_nothing,
    is_certain,
)
from cortex.domain.errors import (
    ConflictError,
    ForbiddenError,
    InvalidOutputError,
    InvalidValueError,
    OutcomeUnknownError,
    RejectedError,
    TimedOutError,
    TransientError,
    UnavailableError,
)
from cortex.domain.failure import CODES, Failure, FailureClass
from cortex.durable.structuring import Problem


def answered(status: int) -> httpx2.HTTPStatusError:
    request = httpx2.Request("POST", "http://example.org")
    response = httpx2.Response(status, request=request)
    return httpx2.HTTPStatusError("told", request=request, response=response)


def chained(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


class OwnRejection(RejectedError):
    code = "no_such_account"


def refused() -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 410, 412, 413, 415, 422, 451])
def test_a_refusal_by_status_is_certain(status: int) -> None:
    assert is_certain(failure_of(answered(status)))


@pytest.mark.parametrize("status", [200, 302, 308, 408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_other_statuses_are_never_certain(status: int) -> None:
    assert not is_certain(failure_of(answered(status)))


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        chained(httpx2.ConnectError("x"), refused()),
        httpx2.ConnectTimeout("x"),
        socket.gaierror(socket.EAI_NONAME, "x"),
        socket.gaierror(socket.EAI_AGAIN, "x"),
        NotSentError("x"),
        TimedOutError("x", scope="connect", limit_s=10),
        ForbiddenError("x"),
        RejectedError("x"),
        InvalidValueError("x"),
        OwnRejection("x"),
        ToolInputError("t", (Problem(("a",), "is missing"),), raw="{}"),
    ],
)
def test_errors_before_any_request_was_sent_are_certain(error: Exception) -> None:
    assert is_certain(failure_of(error))
    assert changed_nothing(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ConnectionResetError(errno.ECONNRESET, "x"),
        BrokenPipeError(errno.EPIPE, "x"),
        OSError(errno.EHOSTUNREACH, "x"),
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        httpx2.ReadTimeout("x"),
        httpx2.WriteTimeout("x"),
        httpx2.ReadError("x"),
        httpx2.RemoteProtocolError("x"),
        httpx2.TooManyRedirects("x"),
        TimeoutError("x"),
        TimedOutError("x", scope="call", limit_s=10),
        TimedOutError("y"),
        ConflictError("x"),
        InvalidOutputError("x", raw=""),
        UnavailableError("x"),
        TransientError("x"),
        OutcomeUnknownError("x"),
        UnsettledError("x"),
        UnsettledError("x", failure=failure_of(answered(425))),
    ],
)
def test_errors_after_a_request_was_sent_are_uncertain(error: Exception) -> None:
    assert not is_certain(failure_of(error))
    assert not changed_nothing(error)


def test_group_is_certain_only_if_every_member_is() -> None:
    assert changed_nothing(ExceptionGroup("one", [RejectedError("x")]))
    assert changed_nothing(ExceptionGroup("two", [RejectedError("x"), NotSentError("y")]))
    assert not changed_nothing(ExceptionGroup("two", [RejectedError("x"), ValueError("y")]))


def test_unsettled_error_has_the_class_of_its_own_failure() -> None:
    failure = failure_of(UnsettledError("x", failure=failure_of(answered(503))))
    assert (failure.cls, failure.code) == (FailureClass.TRANSIENT_APP, "service_unavailable")
    assert failure_of(UnsettledError("x")).cls is FailureClass.TRANSIENT_INFRA


def test_uncertain_codes_are_known_codes() -> None:
    assert set(CODES) >= UNCERTAIN
    assert ToolInputError.code == MISFIT


def test_unknown_codes_are_uncertain() -> None:
    for cls in (FailureClass.VALID, FailureClass.TRANSIENT_APP, FailureClass.TRANSIENT_INFRA):
        assert not is_certain(Failure(cls=cls, code="new", message="x"))
    assert not is_certain(Failure(cls=FailureClass.BUDGET, code="budget", message="x"))
