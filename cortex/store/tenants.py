"""Which tenant's a record is, and what a session that keeps to one tenant may name."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from cortex.domain.errors import NotFoundError
from cortex.postgres.database import Database


class Kind(StrEnum):
    """Records that belong to a tenant."""

    JOB = "job"
    APPROVAL = "approval"
    EFFECT = "effect"
    MESSAGE = "message"
    SCHEDULE = "schedule"


_QUERIES: Final = {
    Kind.JOB: "tenants.jobs",
    Kind.APPROVAL: "tenants.approvals",
    Kind.EFFECT: "tenants.effects",
    Kind.MESSAGE: "tenants.messages",
    Kind.SCHEDULE: "tenants.schedules",
}


async def owned(db: Database, kind: Kind, names: Sequence[Any], *, tenant: str) -> frozenset[Any]:
    """Return those of these records that are the tenant's: ids, of schedules names."""
    rows = await db.fetch(_QUERIES[kind], list(names), tenant)
    return frozenset(row["name"] for row in rows)


async def require_own(db: Database, kind: Kind, names: Sequence[Any]) -> None:
    """Raise `NotFoundError` for a record that is not of the tenant to which the session keeps."""
    if db.tenant is None or not names:
        return
    own = await owned(db, kind, names, tenant=db.tenant)
    for name in names:
        if name not in own:
            raise NotFoundError(
                f"{kind} {name} does not exist for tenant {db.tenant}",
                hint="leave out --tenant to look at those of all",
            )
