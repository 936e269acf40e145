"""Sessions of people who sign in on a page with their token: a cookie instead of the token.

The cookie has 256 random bits; the database stores its digest. It lasts half a day, and no longer
than the token.
"""

import secrets
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from cortex.domain.token import SECRET_BYTES, digest_of_cookie, digest_of_token
from cortex.http.framework.api import Api
from cortex.http.framework.auth import COOKIE_NAME
from cortex.http.framework.principal import Principal
from cortex.http.framework.problem import UnauthenticatedError
from cortex.store import tokens

SESSION_S: Final = 12 * 3600


async def sign_in(api: Api, token: str, *, address: str) -> str:
    """Start a session for the holder of a token; return the value of its cookie.

    Raises `UnauthenticatedError` for an invalid token, which counts as a guess, and
    `RateLimitedError` for an address that guessed too often.
    """
    await api.auth.by_token(f"Bearer {token}", address=address, is_read_only=False)
    value = secrets.token_hex(SECRET_BYTES)
    token_digest, cookie_digest = digest_of_token(token.strip()), digest_of_cookie(value)
    if not await api.port(
        tokens.sign_in, cookie_digest=cookie_digest, token_digest=token_digest, lasts_s=SESSION_S
    ):
        raise UnauthenticatedError("this token was just revoked")
    return value


async def principal_of_session(api: Api, request: Request, *, address: str) -> Principal | None:
    """Return the caller of the request's session cookie, or None."""
    return await api.auth.by_cookie(request.cookies.get(COOKIE_NAME), address=address)


async def sign_out(api: Api, request: Request) -> None:
    """End the session of the request's cookie, if any."""
    digest = digest_of_cookie(request.cookies.get(COOKIE_NAME, ""))
    if digest is not None:
        await api.port(tokens.sign_out, digest)


def set_cookie(response: Response, value: str, *, is_secure: bool) -> None:
    """Set the session cookie: `is_secure` unless the page is read over plain HTTP."""
    response.set_cookie(
        COOKIE_NAME,
        value,
        max_age=SESSION_S,
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="lax",
    )


def drop_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE_NAME, path="/", httponly=True, samesite="lax")
