"""Signing in with an API token, and out again."""

import re
from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME
from cortex.http.framework.limits import household
from cortex.http.framework.origin import is_https, refuse_foreign
from cortex.http.framework.problem import RateLimitedError, UnauthenticatedError
from cortex.http.framework.route import PUBLIC, Method, Route, SignIn
from cortex.http.framework.tenancy import Tenancy
from cortex.http.page.errors import SIGN_IN_PATH, as_page
from cortex.http.page.form import check_csrf, fields_of
from cortex.http.page.inbox import PATH as INBOX_PATH
from cortex.http.page.rendering import page
from cortex.http.page.visitor import SIGN_OUT
from cortex.http.sessions import drop_cookie, set_cookie, sign_in, sign_out

FORM_BYTES_MAX: Final = 8_192
"""A token, a path and a proof: a hundredth of what takes noticeable time to parse."""

_OURS: Final = re.compile(r"/approvals(?:/[0-9a-f-]{36})?", re.ASCII)
"""Allowed targets after signing in."""


@as_page
async def ask_to_sign_in(request: CheckedRequest[None, None], _: Api) -> Response:
    return _form(request.request.query_params.get("next", ""))


@as_page
async def begin_session(request: CheckedRequest[None, bytes], api: Api) -> Response:
    """Exchange a token for a session cookie."""
    refuse_foreign(request.request)
    fields = fields_of(request.body)
    next_path = fields.get("next", "")
    try:
        cookie = await sign_in(api, fields.get("token", ""), address=request.address)
    except UnauthenticatedError:
        return _form(next_path, problem="This token is unknown, expired or revoked.", status=401)
    response = RedirectResponse(_checked(next_path), status_code=303)
    set_cookie(response, cookie, is_secure=is_https(request.request.scope))
    return response


@as_page
async def end_session(request: CheckedRequest[None, bytes], api: Api) -> Response:
    check_csrf(fields_of(request.body), request.request.cookies[COOKIE_NAME], SIGN_OUT)
    await sign_out(api, request.request)
    response = RedirectResponse(SIGN_IN_PATH, status_code=303)
    drop_cookie(response)
    return response


def _admit(address: str, api: Api) -> None:
    """Refuse clients that guess or try too often, before their input is parsed."""
    api.auth.refuse_locked(address)
    wait_s = api.sign_ins.take(household(address))
    if wait_s > 0:
        raise RateLimitedError("too many sign-ins from this address", wait_s=wait_s)


def _form(next_path: str, *, problem: str | None = None, status: int = 200) -> Response:
    return page("sign_in.html", status=status, next=_checked(next_path), problem=problem)


def _checked(path: str) -> str:
    return path if _OURS.fullmatch(path) else INBOX_PATH


def _route(method: Method, path: str, **declared: Any) -> Route:
    return Route(
        method=method,
        path=path,
        media="text/html",
        is_documented=False,
        tenancy=Tenancy.SHARED,
        **declared,
    )


ROUTES: Final = (
    _route(
        Method.GET,
        SIGN_IN_PATH,
        handle=ask_to_sign_in,
        role=PUBLIC,
        summary="Show the sign-in page.",
    ),
    _route(
        Method.POST,
        SIGN_IN_PATH,
        handle=begin_session,
        role=PUBLIC,
        summary="Sign in with a token.",
        raw_body=True,
        body_max=FORM_BYTES_MAX,
        admit=_admit,
    ),
    _route(
        Method.POST,
        "/sign-out",
        handle=end_session,
        role=Role.VIEWER,
        summary="Sign out.",
        sign_in=SignIn.COOKIE,
        raw_body=True,
        body_max=FORM_BYTES_MAX,
    ),
)
