"""RFC 9457 problem documents: the response to a request that failed.

`code` is the stable code of the error, the same as on the command line; `detail` and `hint` are its
message and its remedy. For an internal error only a request number is shown, which is in the log as
well.
"""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Final

import attrs
import orjson
from starlette.responses import Response

from cortex.domain import errors
from cortex.domain.errors import CortexError
from cortex.domain.idempotency import KeyPendingError

MEDIA_TYPE: Final = "application/problem+json"


@attrs.frozen(kw_only=True)
class Problem:
    """A failed request."""

    type: str
    """A URN with the code, the same for all problems of a kind."""
    title: str
    """The same for all problems of a kind."""
    status: int
    """The HTTP status."""
    detail: str | None = None
    """What happened, in one line."""
    code: str = "error"
    """Stable code of the error."""
    hint: str | None = None
    """A remedy."""
    instance: str | None = None
    """Number of the request, as in the log."""


class RefusedError(CortexError):
    """The request was refused before any work."""

    status: ClassVar[HTTPStatus]

    def __init__(
        self, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.headers = dict(headers or {})


class UnauthenticatedError(RefusedError):
    """The request has no credential, or no valid one."""

    code = "unauthenticated"
    status = HTTPStatus.UNAUTHORIZED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, headers={"WWW-Authenticate": 'Bearer realm="cortex"'})


class MethodNotAllowedError(RefusedError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"
    status = HTTPStatus.METHOD_NOT_ALLOWED


class GoneError(RefusedError):
    """What the address stood for is over."""

    code = "gone"
    status = HTTPStatus.GONE


class TooSlowError(RefusedError):
    """The request took too long to arrive."""

    code = "too_slow"
    status = HTTPStatus.REQUEST_TIMEOUT


class TooLargeError(RefusedError):
    """The body exceeds the limit."""

    code = "too_large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class NotJsonError(RefusedError):
    """The body has a media type that this route does not support."""

    code = "media_type"
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class RateLimitedError(RefusedError):
    """The caller sent too many requests in a short time."""

    code = "rate_limited"
    status = HTTPStatus.TOO_MANY_REQUESTS

    def __init__(self, message: str, *, wait_s: float) -> None:
        super().__init__(message, headers={"Retry-After": str(max(1, math.ceil(wait_s)))})


class EndingError(RefusedError):
    """The pod is about to end; another one will answer."""

    code = "draining"
    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self) -> None:
        super().__init__("this pod is about to end", headers={"Retry-After": "1"})


STATUSES: Final[tuple[tuple[type[CortexError], HTTPStatus], ...]] = (
    # The first matching class decides: narrower ones come first.
    (errors.KeyReusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.UsageError, HTTPStatus.BAD_REQUEST),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.ConflictError, HTTPStatus.CONFLICT),
    (errors.RejectedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.TimedOutError, HTTPStatus.GATEWAY_TIMEOUT),
    (errors.UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.CapReachedError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.TransientError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.SchemaError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The status of each error family; any other error is internal."""

_ASK_AGAIN: Final = (
    errors.UnavailableError,
    errors.TransientError,
    errors.SchemaError,
    KeyPendingError,
)


_WAITS_S: Final[Mapping[type[CortexError], int]] = {errors.CapReachedError: 5}
"""Seconds after which it may be asked again; else 1."""


def status_of(error: CortexError) -> HTTPStatus:
    if isinstance(error, RefusedError):
        return error.status
    fits = (status for family, status in STATUSES if isinstance(error, family))
    return next(fits, HTTPStatus.INTERNAL_SERVER_ERROR)


def response_to(error: CortexError, *, instance: str | None = None) -> Response:
    """Return the problem document of an error that its caller may read."""
    status = status_of(error)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return fault(instance=instance)
    headers = dict(error.headers) if isinstance(error, RefusedError) else {}
    if isinstance(error, _ASK_AGAIN):
        wait_s = getattr(error, "retry_after_s", None) or _WAITS_S.get(type(error), 1)
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    tells_where = "://" in error.message  # do not reveal the address of the database
    problem = Problem(
        type=_urn(error.code),
        title=status.phrase,
        status=status.value,
        detail="the database does not answer" if tells_where else error.message,
        code=error.code,
        hint=None if tells_where else error.hint,
        instance=instance,
    )
    return response_of(problem, headers)


def fault(*, instance: str | None = None) -> Response:
    """Return the problem document of an internal error, without details."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    problem = Problem(
        type=_urn("internal"),
        title=status.phrase,
        status=status.value,
        detail="internal error; see the pod's log",
        code="internal",
        instance=instance,
    )
    return response_of(problem)


def bare(status: int) -> bytes:
    """Return the problem document for a malformed request."""
    code = "too_large" if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else "usage"
    problem = Problem(
        type=_urn(code),
        title=HTTPStatus(status).phrase,
        status=status,
        detail="not a well-formed HTTP/1.1 request",
        code=code,
    )
    return _document(problem)


def cortex_error_in(error: BaseException) -> CortexError | None:
    """Return the error that an exception means for its caller; None if it is internal."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, CortexError) else None


def response_of(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_document(problem), problem.status, headers, media_type=MEDIA_TYPE)


def _document(problem: Problem) -> bytes:
    text: dict[str, Any] = attrs.asdict(problem, filter=lambda _, value: value is not None)
    return orjson.dumps({key: _utf8(value) for key, value in text.items()})


def _utf8(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _urn(code: str) -> str:
    return f"urn:cortex:problem:{code}"
