"""The page of one request, for viewers and deciders.

Invariants: a GET decides nothing and uses nothing up; a decision is a POST from this very page,
bound to its visitor, and names the displayed arguments. A link is enough where the risk is low and
one approval suffices; the first GET removes its token from the address.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from cortex.crash_points import crash_point
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import Vote, VoteError, check_signed_in, edit_in, refusal
from cortex.domain.errors import ConflictError, ForbiddenError, RejectedError
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.body import BYTES_MAX
from cortex.http.framework.origin import client_of, refuse_foreign
from cortex.http.framework.route import PUBLIC, UUID_PARAM, Method, Route
from cortex.http.framework.tenancy import Tenancy, is_own
from cortex.http.page.answer import ApprovalForm, FormAction, answer_of
from cortex.http.page.approval_view import show
from cortex.http.page.errors import as_page, not_good, sign_in_first
from cortex.http.page.form import check_csrf, fields_of
from cortex.http.page.visitor import Visitor, drop_link, keep_link, path_of, visitor_of
from cortex.http.sessions import principal_of_session
from cortex.store import approvals
from cortex.store.tenants import Kind

SIGNED_IN: Final = "page"
LINK: Final = "link"
"""Channel of a decision by link, signed in or with a typed name."""
UNVERIFIED: Final = "(unverified)"
"""Appended to a typed name wherever it is displayed."""
TOKEN: Final = "t"  # noqa: S105 -- the name of the parameter


@as_page
async def look(request: CheckedRequest[None, None], api: Api) -> Response:
    """Show a request."""
    approval_id: UUID = request.path["approval_id"]
    token = request.request.query_params.get(TOKEN)
    if token is not None:
        return await _enter(request, api, token)
    visitor = await visitor_of(request, api, approval_id)
    if not visitor.is_nobody:
        response = show(await api.port(approvals.show, approval_id), visitor)
    elif visitor.has_stale_link:
        response = not_good(path_of(approval_id))
    else:
        response = sign_in_first(path_of(approval_id))
    if visitor.has_stale_link:
        drop_link(response, approval_id)
    return response


async def _enter(request: CheckedRequest[None, None], api: Api, token: str) -> Response:
    """Move the token of a link from the address into a cookie of this page only."""
    approval_id: UUID = request.path["approval_id"]
    reader = await principal_of_session(api, request.request, address=request.address)
    is_approver = reader is not None and reader.may(Role.APPROVER)
    if is_approver and await is_own(api.port, reader, Kind.APPROVAL, approval_id):
        # Signed-in readers need no link, so that guessing at links cannot lock them out.
        return RedirectResponse(path_of(approval_id), status_code=303)
    if await api.links.fits(approval_id, token, address=request.address):
        response: Response = RedirectResponse(path_of(approval_id), status_code=303)
        keep_link(response, request, token)
        return response
    visitor = await visitor_of(request, api, approval_id)
    if visitor.is_nobody:
        return not_good(path_of(approval_id))
    return RedirectResponse(path_of(approval_id), status_code=303)


@as_page
async def take(request: CheckedRequest[None, bytes], api: Api) -> Response:
    """Take a decision, or show the changes of an edit."""
    approval_id: UUID = request.path["approval_id"]
    refuse_foreign(request.request)
    visitor = await visitor_of(request, api, approval_id)
    if visitor.is_nobody:
        return not_good(path_of(approval_id))
    if visitor.secret is None:
        raise ForbiddenError(f"{visitor.name} may view approvals, but not decide them")
    fields = await api.apart(partial(fields_of, request.body), size=len(request.body))
    check_csrf(fields, visitor.secret, str(approval_id))
    form = answer_of(fields)
    approval = await api.port(approvals.show, approval_id)
    check_signed_in(approval, is_signed_in=visitor.is_approver)
    try:
        vote = _vote(request, visitor, form)
        edited = _to_review(approval, vote, form)
        if edited is not None:
            return show(approval, visitor, answer=form, edited=edited)
        crash_point("before_act")
        await api.port(approvals.decide, [vote])
        crash_point("after_act")
    except (RejectedError, ConflictError) as error:
        stands = await api.port(approvals.show, approval_id)
        return show(stands, visitor, answer=form, error=error)
    return RedirectResponse(path_of(approval_id), status_code=303)


def _to_review(approval: Approval, vote: Vote, form: ApprovalForm) -> str | None:
    """Return edited arguments that must be shown before they are decided on; None: decide.

    Raises what keeps the vote from counting as far as that is known, so that a review never
    becomes a decision.
    """
    is_review = form.act is FormAction.REVIEW
    if not approval.is_open:
        if is_review:
            raise refusal(approval, "already")
        return None
    edited = edit_in(approval, vote)
    if edited is None and is_review:
        raise VoteError("arguments", "Nothing was changed: these are the current arguments.")
    return edited if is_review or form.edited is None else None


def _vote(request: CheckedRequest[None, bytes], visitor: Visitor, form: ApprovalForm) -> Vote:
    is_approved = form.act is not FormAction.DENY
    text = form.draft if form.edited is None else form.edited
    return Vote(
        approval_id=request.path["approval_id"],
        is_approved=is_approved,
        by=visitor.identity("" if visitor.is_approver else f"{form.typed_name()} {UNVERIFIED}"),
        seen=form.digest,
        version=form.version,
        reason=form.why,
        confirm=form.confirm,
        edited=text if is_approved else None,
        channel=SIGNED_IN if visitor.is_approver else LINK,
        address=request.address,
        client=client_of(request.request),
    )


def _route(method: Method, **declared: Any) -> Route:
    return Route(
        method=method,
        path="/approvals/{approval_id}",
        role=PUBLIC,  # a link gives access as well
        tenancy=Tenancy.APPROVAL,
        params={"approval_id": UUID_PARAM},
        media="text/html",
        is_documented=False,
        **declared,
    )


ROUTES: Final = (
    _route(Method.GET, handle=look, summary="Show the page of an approval request."),
    _route(
        Method.POST,
        handle=take,
        summary="Submit a decision on the page.",
        raw_body=True,
        body_max=BYTES_MAX,
    ),
)
