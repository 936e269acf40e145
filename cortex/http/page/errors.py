"""Errors as people in a browser read them."""

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
    HTTPStatus.BAD_REQUEST: "That was not understood",
    HTTPStatus.UNAUTHORIZED: "Who are you?",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "There is nothing here",
    HTTPStatus.CONFLICT: "Somebody else was first",
    HTTPStatus.UNPROCESSABLE_ENTITY: "That is not valid",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many tries",
    HTTPStatus.SERVICE_UNAVAILABLE: "Not now",
}
_Handler = Callable[[CheckedRequest[Any, Any], Api], Awaitable[Response]]


def as_page(handle: _Handler) -> _Handler:
    """Let a handler tell its errors as a page; faults in Cortex are told as everywhere."""

    @wraps(handle)
    async def answered(asked: CheckedRequest[Any, Any], api: Api) -> Response:
        try:
            return await handle(asked, api)
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
    """Answer a link that opens nothing: wrong, of another request, replaced, or too old."""
    return message(
        "This link is not good",
        "It was replaced by another one, it is too old, or something of it is missing.",
        status=HTTPStatus.FORBIDDEN.value,
        link={"href": sign_in_url(path), "text": "Sign in instead"},
    )


def sign_in_first(path: str) -> Response:
    """Send a reader to sign in; they come back."""
    return RedirectResponse(sign_in_url(path), HTTPStatus.SEE_OTHER.value)


def sign_in_url(path: str) -> str:
    """Return where one signs in on the way to a path."""
    return f"{SIGN_IN_PATH}?next={quote(path)}"
