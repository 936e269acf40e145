"""The visitor of a page: signed in, with the link of a request, or neither."""

from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.errors import NotFoundError
from cortex.domain.people import Identity
from cortex.domain.token import Role, digest_of_link
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME
from cortex.http.framework.gate import WHO
from cortex.http.framework.origin import is_https
from cortex.http.framework.principal import Principal
from cortex.http.framework.tenancy import is_own
from cortex.http.page.form import csrf_of
from cortex.http.sessions import principal_of_session
from cortex.store.tenants import Kind

LINK_COOKIE: Final = "cortex_link"
LINK_S: Final = 24 * 3600
SIGN_OUT: Final = "sign-out"


@attrs.frozen(kw_only=True)
class Visitor:
    """The visitor of one request."""

    principal: Principal | None
    """The signed-in caller, if they may view."""
    session: str | None
    """Their session cookie."""
    link: str | None
    """The valid token of the request's link; not checked for those who may decide anyway."""
    has_stale_link: bool = False

    @property
    def is_nobody(self) -> bool:
        """Whether they may not even view."""
        return self.principal is None and self.link is None

    @property
    def is_approver(self) -> bool:
        """Whether they are signed in and may decide."""
        return self.principal is not None and self.principal.may(Role.APPROVER)

    @property
    def name(self) -> str | None:
        return None if self.principal is None else self.principal.name

    def identity(self, typed_name: str) -> Identity:
        """Return who acts: the approver who signed in, else the reader of the link."""
        if self.principal is not None and self.is_approver:
            return self.principal.identity
        return Identity.with_link(typed_name, link=digest_of_link(self.link or ""))

    @property
    def secret(self) -> str | None:
        """The secret that binds their forms; None if they may not submit any."""
        return self.session if self.is_approver else self.link

    @property
    def sign_out_csrf(self) -> str | None:
        return None if self.session is None else csrf_of(self.session, SIGN_OUT)


async def visitor_of(requested: CheckedRequest[Any, Any], api: Api, approval_id: UUID) -> Visitor:
    """Return the visitor of this request; someone of another tenant is one by link only.

    Raises `NotFoundError` for a request of another tenant, and `RateLimitedError` after too many
    guesses.
    """
    request = requested.request
    principal = await principal_of_session(api, request, address=requested.address)
    if principal is not None and not principal.may(Role.VIEWER):
        principal = None
    is_foreign = principal is not None and not await is_own(
        api.port, principal, Kind.APPROVAL, approval_id
    )
    if is_foreign:
        principal = None
    if principal is not None:
        request.scope[WHO] = principal.name
    visitor = Visitor(
        principal=principal,
        session=None if principal is None else request.cookies.get(COOKIE_NAME),
        link=None,
    )
    token = request.cookies.get(LINK_COOKIE)
    if token is not None and not visitor.is_approver:
        if await api.links.fits(approval_id, token, address=requested.address):
            return attrs.evolve(visitor, link=token)
        visitor = attrs.evolve(visitor, has_stale_link=True)
    if is_foreign:
        raise NotFoundError(f"approval {approval_id} does not exist")
    return visitor


def keep_link(response: Response, request: CheckedRequest[Any, Any], token: str) -> None:
    """Set a cookie with the token of a link, for the page of its request only."""
    response.set_cookie(
        LINK_COOKIE,
        token,
        max_age=LINK_S,
        path=path_of(request.path["approval_id"]),
        secure=is_https(request.request.scope),
        httponly=True,
        samesite="lax",
    )


def drop_link(response: Response, approval_id: UUID) -> None:
    """Delete the cookie of a link."""
    response.delete_cookie(LINK_COOKIE, path=path_of(approval_id), httponly=True, samesite="lax")


def path_of(approval_id: UUID) -> str:
    return f"/approvals/{approval_id}"
