"""Job types that need more than the role of the route, in every way to start such a job."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from cortex.domain.errors import ForbiddenError
from cortex.domain.job import BEYOND_TENANT, BULK, EXECUTE_TOOL, RUN_AGENT
from cortex.domain.token import Role
from cortex.http.framework.api import Api
from cortex.http.framework.principal import Principal
from cortex.store import jobs

REASONS: Final = MappingProxyType(
    {
        EXECUTE_TOOL: "it calls any tool of a pod, without the rules of an agent or a flow",
        BULK: "it may retry jobs of any type, in the name of another person",
    }
)
"""Types that only an admin may submit, retry or trigger, and why."""
_OF_ALL: Final = "it acts on the jobs of all tenants, or calls any tool of a pod"


def require_right(job_type: str, principal: Principal) -> None:
    """Raise `ForbiddenError` unless the requester may start a job of this type."""
    if job_type in BEYOND_TENANT and principal.tenant is not None:
        raise ForbiddenError(
            f"job type {job_type} needs a token of all tenants",
            hint=_OF_ALL,
        )
    if job_type in REASONS and not principal.may(Role.ADMIN):
        raise ForbiddenError(
            f"job type {job_type} needs a token with role {Role.ADMIN}", hint=REASONS[job_type]
        )


def require_submission(
    job_type: str, payload: Mapping[str, object], key: str | None, principal: Principal
) -> None:
    """Raise `ForbiddenError` for what a caller may not submit who may only submit."""
    if principal.may(Role.OPERATOR):
        return
    if job_type in BEYOND_TENANT:
        what, why = f"job type {job_type}", "it acts on the jobs of others"
    elif job_type == RUN_AGENT and (named := {"folder", "within"} & payload.keys()):
        what, why = f"payload.{min(named)} of {RUN_AGENT}", "it names a folder of the pods"
    elif key is not None:
        what, why = "a job key", "it replaces a waiting job of any submitter"
    else:
        return
    raise ForbiddenError(f"{what} needs a token with role {Role.OPERATOR}", hint=why)


async def require_rights(job_ids: Sequence[UUID], principal: Principal, api: Api) -> None:
    """Raise `ForbiddenError` unless the requester may start jobs of the types of all of these."""
    if principal.tenant is not None:
        for found in await api.port(jobs.of_types, job_ids, tuple(BEYOND_TENANT)):
            raise ForbiddenError(
                f"job {found.id} is of type {found.type}, which needs a token of all tenants",
                hint=f"{_OF_ALL}; leave such jobs out",
            )
    if principal.may(Role.ADMIN):
        return
    for found in await api.port(jobs.of_types, job_ids, tuple(REASONS)):
        raise ForbiddenError(
            f"job {found.id} is of type {found.type}, which needs a token with role {Role.ADMIN}",
            hint=f"{REASONS[found.type]}; leave such jobs out",
        )
