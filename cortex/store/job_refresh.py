"""A list of jobs that a screen shows, read again: its jobs, how many are newer, and the head."""

from collections.abc import Sequence
from uuid import UUID

import attrs

from cortex.domain.job import UPKEEP
from cortex.domain.job_filter import JobCursor
from cortex.postgres.database import Database
from cortex.store.jobs import ListedJob
from cortex.store.rows import rows_of
from cortex.store.screen_head import COUNT_MAX, Head, head_of


@attrs.frozen(kw_only=True)
class ListReading:
    """The current state of a list of jobs."""

    jobs: list[ListedJob]
    """In no order; those that are gone are left out."""
    newer_count: int
    """How many are newer than the list's first one, up to the given cap."""
    head: Head


async def refresh(
    db: Database, ids: Sequence[UUID], *, since: JobCursor | None = None, newer_max: int = 0
) -> ListReading:
    """Read some jobs of a list, how many are newer than a place, and the head, in one snapshot."""
    rows = await db.fetch(
        "job_pages.refresh",
        list(ids),
        None if since is None else since.at,
        None if since is None else since.id,
        newer_max,
        COUNT_MAX,
        list(UPKEEP),
    )
    (document,) = [row["head"] for row in rows if row["head"] is not None]
    head = head_of(document)
    existing = [row for row in rows if row["id"] is not None]
    return ListReading(
        jobs=rows_of(ListedJob, existing, now=head.now, why=None),
        newer_count=rows[0]["newer_count"],
        head=head,
    )
