"""Keeps a token of one tenant to that tenant's records: the single place that decides it.

Each route declares its tenancy. Whatever a path names is looked up with its tenant before the
handler runs, so that a record of another tenant and one that does not exist take the same way and
get the same answer. A list restricts itself in SQL, by `CheckedRequest.tenant`; the answer of a
handler that has not read that is withheld.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.domain.token import Role
from cortex.http.framework.principal import Principal
from cortex.postgres.bridge import Port
from cortex.store import people, tenants
from cortex.store.tenants import Kind


class Tenancy(StrEnum):
    """How a route treats a token of one tenant."""

    SHARED = "shared"
    """Alike for everybody: what is declared in code and files, and what needs no token."""
    INSTALLATION = "installation"
    """About all tenants: refused for a token of one."""
    FILTERED = "filtered"
    """The handler reads `CheckedRequest.tenant` and keeps to it."""
    JOB = "job"
    """The path names a job."""
    APPROVAL = "approval"
    EFFECT = "effect"
    MESSAGE = "message"
    SCHEDULE = "schedule"


PARAMS: Final = {
    Tenancy.JOB: ("job_id", Kind.JOB),
    Tenancy.APPROVAL: ("approval_id", Kind.APPROVAL),
    Tenancy.EFFECT: ("effect_id", Kind.EFFECT),
    Tenancy.MESSAGE: ("message_id", Kind.MESSAGE),
    Tenancy.SCHEDULE: ("schedule", Kind.SCHEDULE),
}
"""The parameter of the path that names a record, and the record's kind."""


@attrs.define
class TenantUse:
    """Whether a handler has read the tenant to which it must keep."""

    is_read: bool = False


def refuse_for_tenant(tenancy: Tenancy, principal: Principal) -> None:
    """Raise `ForbiddenError` for a route about all tenants and a token of one."""
    if tenancy is Tenancy.INSTALLATION and principal.tenant is not None:
        raise ForbiddenError(
            f"this is about all tenants; {principal.name}'s token is of tenant {principal.tenant}",
            hint="ask an admin for a token of all tenants",
        )


async def require_own(port: Port, principal: Principal, kind: Kind, names: Sequence[Any]) -> None:
    """Raise `NotFoundError` for the first of these records that is not the caller's tenant's.

    The error is the same for a record of another tenant and for one that does not exist.
    """
    if principal.tenant is None or not names:
        return
    owned = await port(tenants.owned, kind, names, tenant=principal.tenant)
    for name in names:
        if name not in owned:
            raise NotFoundError(f"{kind} {name} does not exist")


def is_submitter(principal: Principal) -> bool:
    """Whether the caller reads only the jobs that they submitted."""
    return principal.may(Role.SUBMITTER) and not principal.may(Role.VIEWER)


async def require_submitted(port: Port, principal: Principal, job_id: Any) -> None:
    """Raise `NotFoundError` for a job that another person submitted, or nobody."""
    if not await port(people.has_submitted, principal.credential, job_id):
        raise NotFoundError(f"{Kind.JOB} {job_id} does not exist")


async def is_own(port: Port, principal: Principal | None, kind: Kind, name: Any) -> bool:
    """Whether this record is one of the caller's tenant; for a caller of all tenants, always."""
    if principal is None or principal.tenant is None:
        return True
    return bool(await port(tenants.owned, kind, [name], tenant=principal.tenant))
