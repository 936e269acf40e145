"""What jobs publish of themselves while they run."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import orjson

from cortex.domain.job import Publish
from cortex.domain.published import COUNTS_MAX, JobProgress
from cortex.postgres.database import Database, affected
from cortex.postgres.dedicated import Dedicated


@attrs.frozen(kw_only=True)
class JobShows:
    """What a job has published."""

    state: Mapping[str, Any]
    progress: JobProgress | None
    at: datetime | None
    """When it was last changed; None: its code has published nothing."""


async def publish(db: Database, *, pod_id: UUID, changes: Sequence[Publish]) -> set[UUID]:
    """Publish what jobs have assigned; return those that the pod still owns.

    No two changes may be of one job. Repeating it changes nothing.
    """
    progress = [each.progress for each in changes]
    rows = await db.fetch(
        "published.publish",
        pod_id,
        [each.lease.job_id for each in changes],
        [each.lease.attempt for each in changes],
        [each.number for each in changes],
        [each.changes for each in changes],
        [each.defaults for each in changes],
        [orjson.dumps(each.removed).decode() for each in changes],
        [each and each.done for each in progress],
        [each and each.total for each in progress],
        [each and each.unit for each in progress],
        [each.is_default for each in changes],
        [orjson.dumps(each.removed_again).decode() for each in changes],
        [each.counts for each in changes],
        COUNTS_MAX,
    )
    return affected(rows, "job_id")


async def of_job(db: Database | Dedicated, job_id: UUID) -> JobShows | None:
    """Return what a job has published; None: it does not exist for this login."""
    rows = await db.fetch("published.of_job", job_id)
    if not rows:
        return None
    (row,) = rows
    progress = None
    if row["done"] is not None:
        progress = JobProgress(done=row["done"], total=row["total"], unit=row["unit"])
    return JobShows(state=orjson.loads(row["state"]), progress=progress, at=row["at"])
