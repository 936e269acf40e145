"""Which tenant's a record is."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

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
