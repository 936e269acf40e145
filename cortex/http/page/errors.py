"""Errors as pages for people."""

from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from cortex.domain.errors import CortexError
from cortex.domain.safe import safe
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.problem import RefusedError, status_of
from cortex.http.page.rendering import message

SIGN_IN_PATH: Final = "/sign-in"
_TITLES: Final = {
    HTTPStatus.BAD_REQUEST: "Invalid request",
    HTTPStatus.UNAUTHORIZED: "Sign in required",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.CONFLICT: "Another decision came first",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid input",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many attempts",
    HTTPStatus.SERVICE_UNAVAILABLE: "Temporarily unavailable",
}
_Handler = Callable[[CheckedRequest[Any, Any], Api], Awaitable[Response]]


def as_page(handle: _Handler) -> _Handler:
    """Turn a handler's errors into pages; internal errors are handled as everywhere."""

    @wraps(handle)
    async def answered(request: CheckedRequest[Any, Any], api: Api) -> Response:
        try:
            return await handle(request, api)
        except CortexError as error:
            status = status_of(error)
            if status is HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            headers = error.headers if isinstance(error, RefusedError) else {}
            retry_after = headers.get("Retry-After")
            return message(
                _TITLES.get(status, status.phrase),
                safe(error.message),
                status=status.value,
                headers={} if retry_after is None else {"Retry-After": retry_after},
                hint=None if error.hint is None else safe(error.hint),
            )

    return answered


def not_good(path: str) -> Response:
    """Answer an invalid link: wrong, of another request, replaced, or expired."""
    return message(
        "This link is not valid",
        "It was replaced by another one, has expired, or is incomplete.",
        status=HTTPStatus.FORBIDDEN.value,
        link={"href": sign_in_url(path), "text": "Sign in instead"},
    )


def sign_in_first(path: str) -> Response:
    """Redirect a reader to sign in; they return afterwards."""
    return RedirectResponse(sign_in_url(path), HTTPStatus.SEE_OTHER.value)


def sign_in_url(path: str) -> str:
    return f"{SIGN_IN_PATH}?next={quote(path)}"
