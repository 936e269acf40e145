"""What traces of jobs lack that an earlier pod could not export."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import attrs

from cortex.domain.job import Lease
from cortex.postgres.database import Database
from cortex.store.rows import rows_of


@attrs.frozen(kw_only=True)
class LostAttempt:
    """An attempt that ended with its pod."""

    attempt: int
    outcome: str
    began_at: datetime | None
    ended_at: datetime
    pod: str | None


@attrs.frozen(kw_only=True)
class Resumed:
    """A job that goes on after others."""

    id: UUID
    origin_id: UUID | None
    """The failed job that it continues."""
    origin_traceparent: str | None
    lost: list[LostAttempt]
    """The attempts right before this one that ended with their pods."""


async def resumed(db: Database, leases: Sequence[Lease]) -> list[Resumed]:
    """Return what came before these attempts."""
    ids, attempts = [each.job_id for each in leases], [each.attempt for each in leases]
    return rows_of(Resumed, await db.fetch("jobs.resumed", ids, attempts))
