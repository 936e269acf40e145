"""`/v1/approvals`: waiting requests, and decisions. The first decision wins.

A decision names the digest of the displayed arguments and never counts for others. A later decision
gets a 409 with the earlier one: who, when and how.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.approvals.vote import Vote, why_sign_in
from cortex.domain.argument_check import WHAT
from cortex.domain.canonical import canonical
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.body import BYTES_MAX
from cortex.http.framework.idempotent import mutate
from cortex.http.framework.origin import base_url, client_of
from cortex.http.framework.resource import (
    document_of,
    page_of,
    schema_of_page,
    schema_of_rows,
)
from cortex.http.framework.route import UUID_PARAM, answer, change, read
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.http.routes.approval_shapes import (
    ApprovalsQuery,
    Approve,
    Batch,
    BatchAnswer,
    BatchDecided,
    Decided,
    Deny,
    Link,
)
from cortex.postgres.database import Database
from cortex.store import approvals
from cortex.store.tenants import Kind
from cortex.view.resources.approvals import APPROVAL, APPROVALS
from cortex.view.verbs import APPROVE, DENY, LINK_APPROVAL

CHANNEL: Final = "api"
_ASKED: Final = attrs.filters.include(
    "approval_id", "is_approved", "seen", "version", "reason", "confirm", "edited"
)
"""Of a vote what the client asked for: an idempotency key stands for this."""
NEXT_ID: Final = (UUID | None, "cursor of the next page; null: last page")
_PARAMS: Final = {"approval_id": UUID_PARAM}


async def list_approvals(request: CheckedRequest[ApprovalsQuery, None], api: Api) -> Response:
    query = request.query
    tenant = request.tenant
    if query.cursor is not None:
        # An unknown id is an error, not the first page.
        await require_own(api.port, request.principal, Kind.APPROVAL, [query.cursor])
        await api.port(approvals.show, query.cursor)
    wanted = tuple(dict.fromkeys(query.status))
    limit = query.limit + 1
    if wanted in ((), (ApprovalStatus.PENDING,)):
        rows = await api.port(approvals.pending, after=query.cursor, limit=limit, tenant=tenant)
    else:
        rows = await api.port(
            approvals.page, statuses=wanted, before=query.cursor, limit=limit, tenant=tenant
        )
    shown = rows[: query.limit]
    more = len(rows) > query.limit
    return answer(page_of(APPROVALS, shown, next_cursor=shown[-1].id if more else None))


async def show_approval(request: CheckedRequest[None, None], api: Api) -> Response:
    row = await api.port(approvals.show, request.path["approval_id"])
    return answer(document_of(APPROVAL, row, request.principal))


async def approve_approval(request: CheckedRequest[None, Approve], api: Api) -> Response:
    body = request.body
    edited = None
    if body.arguments is not None:
        edited = await api.apart(partial(canonical, body.arguments, what=WHAT), size=request.size)
    vote = _vote(
        request,
        approval_id=request.path["approval_id"],
        is_approved=True,
        seen=bytes.fromhex(body.digest),
        version=body.version,
        reason=body.reason,
        edited=edited,
        confirm=body.confirm,
    )
    return await _decide(request, api, vote)


async def deny_approval(request: CheckedRequest[None, Deny], api: Api) -> Response:
    vote = _vote(
        request,
        approval_id=request.path["approval_id"],
        is_approved=False,
        seen=bytes.fromhex(request.body.digest),
        version=request.body.version,
        reason=request.body.reason,
    )
    return await _decide(request, api, vote)


async def decide_approvals(requested: CheckedRequest[None, Batch], api: Api) -> Response:
    """Decide several requests, all or none."""
    body = requested.body
    if requested.tenant is not None:
        named = [each.id for each in body.approvals]
        await require_own(api.port, requested.principal, Kind.APPROVAL, named)
    votes = [
        _vote(
            requested,
            approval_id=each.id,
            is_approved=body.decision is BatchAnswer.APPROVE,
            seen=bytes.fromhex(each.digest),
            reason=body.reason,
        )
        for each in body.approvals
    ]

    async def work(db: Database) -> BatchDecided:
        results = await approvals.decide(db, votes)
        return BatchDecided(
            decided=[
                Decided(id=vote.approval_id, outcome=each.outcome, agreed=each.agreed_count)
                for vote, each in zip(votes, results, strict=True)
            ]
        )

    request = {
        "approvals": {str(each.approval_id): each.seen for each in votes},
        "reason": body.reason,
    }
    return await mutate(
        requested, api, work, operation=f"approvals.{body.decision}", request=request
    )


async def link_approval(request: CheckedRequest[None, None], api: Api) -> Response:
    """Create a link; each call creates a new one."""
    approval_id = request.path["approval_id"]
    token = await api.port(approvals.link, approval_id, by=request.principal.identity)
    row = await api.port(approvals.show, approval_id)
    path = f"/approvals/{approval_id}?t={token}"
    made = Link(
        path=path,
        url=base_url(request.request) + path,
        needs_sign_in=why_sign_in(row) is not None,
        expires_at=row.expires_at,
    )
    return answer(made, status=201)


async def _decide(requested: CheckedRequest[None, Any], api: Api, vote: Vote) -> Response:
    async def work(db: Database) -> Decided:
        (result,) = await approvals.decide(db, [vote])
        return Decided(id=vote.approval_id, outcome=result.outcome, agreed=result.agreed_count)

    verb = BatchAnswer.APPROVE if vote.is_approved else BatchAnswer.DENY
    request = attrs.asdict(vote, filter=_ASKED)
    return await mutate(requested, api, work, operation=f"approvals.{verb}", request=request)


def _vote(request: CheckedRequest[None, Any], **given: Any) -> Vote:
    return Vote(
        by=request.principal.identity,
        channel=request.principal.via or CHANNEL,
        address=request.address,
        client=client_of(request.request),
        **given,
    )


ROUTES: Final = (
    read(
        "/v1/approvals",
        list_approvals,
        "List approval requests.",
        query=ApprovalsQuery,
        answers={200: schema_of_page(APPROVALS, doc="A page of requests.", next_cursor=NEXT_ID)},
        refuses=(404,),
        tenancy=Tenancy.FILTERED,
    ),
    change(
        APPROVE,
        "/v1/approvals/batch",
        decide_approvals,
        "Decide requests of one shape, all or none.",
        body=Batch,
        answers={200: BatchDecided},
        refuses=(404, 409),
        tenancy=Tenancy.FILTERED,
    ),
    read(
        "/v1/approvals/{approval_id}",
        show_approval,
        "Show everything a decision is based on.",
        params=_PARAMS,
        answers={200: schema_of_rows(APPROVAL)},
        refuses=(404,),
        tenancy=Tenancy.APPROVAL,
    ),
    change(
        APPROVE,
        "/v1/approvals/{approval_id}/approve",
        approve_approval,
        "Approve a request: its call runs with exactly these arguments, once.",
        params=_PARAMS,
        body=Approve,
        body_max=BYTES_MAX,
        answers={200: Decided},
        refuses=(404, 409),
        tenancy=Tenancy.APPROVAL,
    ),
    change(
        DENY,
        "/v1/approvals/{approval_id}/deny",
        deny_approval,
        "Deny a request: its call does not run.",
        params=_PARAMS,
        body=Deny,
        answers={200: Decided},
        refuses=(404, 409),
        tenancy=Tenancy.APPROVAL,
    ),
    change(
        LINK_APPROVAL,
        "/v1/approvals/{approval_id}/link",
        link_approval,
        "Create a link to the page of a request, shown once.",
        params=_PARAMS,
        answers={201: Link},
        refuses=(404, 409),
        tenancy=Tenancy.APPROVAL,
    ),
)
