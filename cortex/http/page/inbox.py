"""The page of all waiting requests."""

from typing import Any, Final
from uuid import UUID

import attrs
from starlette.responses import Response

from cortex.domain.approvals.approval import ApprovalRow
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.auth import COOKIE_NAME
from cortex.http.framework.route import SignIn, read
from cortex.http.framework.shape import field
from cortex.http.framework.tenancy import Tenancy, require_own
from cortex.http.page.errors import as_page
from cortex.http.page.form import csrf_of
from cortex.http.page.rendering import page
from cortex.http.page.visitor import SIGN_OUT
from cortex.store import approvals
from cortex.store.tenants import Kind
from cortex.view.approval_facts import countdown
from cortex.view.approvals import call_of

ROWS_MAX: Final = 100
PATH: Final = "/approvals"


@attrs.frozen(kw_only=True)
class InboxQuery:
    """A part of the list."""

    cursor: UUID | None = field(doc="last request of the previous page", default=None)


@as_page
async def inbox(request: CheckedRequest[InboxQuery, None], api: Api) -> Response:
    """Show waiting requests, the most dangerous first."""
    cursor, tenant = request.query.cursor, request.tenant
    if cursor is not None:
        await require_own(api.port, request.principal, Kind.APPROVAL, [cursor])
    rows = await api.port(approvals.pending, after=cursor, limit=ROWS_MAX + 1, tenant=tenant)
    return page(
        "inbox.html",
        rows=[_row(row) for row in rows[:ROWS_MAX]],
        more=rows[ROWS_MAX - 1].id if len(rows) > ROWS_MAX else None,
        name=request.principal.name,
        sign_out_csrf=csrf_of(request.request.cookies[COOKIE_NAME], SIGN_OUT),
    )


def _row(row: ApprovalRow) -> dict[str, Any]:
    left_s = (row.expires_at - row.now).total_seconds()
    return {
        "id": row.id,
        "risk": row.risk,
        "what": call_of(row, row.arguments),
        "effect": row.effect or "",
        "asker": row.agent or row.job_type or "",
        "left": countdown(left_s) if left_s > 0 else "expired",
    }


ROUTES: Final = (
    read(
        PATH,
        inbox,
        "Show the page of waiting requests.",
        query=InboxQuery,
        sign_in=SignIn.COOKIE,
        media="text/html",
        is_documented=False,
        tenancy=Tenancy.FILTERED,
    ),
)
