"""Children of jobs: their submission, how they ended, what becomes of them after their parent."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.budget import OwnBudget
from cortex.domain.child import (
    DEPTH_MAX,
    AdoptVerdict,
    ChildOutcome,
    ChildTerms,
    SpawnReply,
    reason_of_cut,
)
from cortex.domain.errors import NotFoundError
from cortex.domain.job import JobStatus, Lease
from cortex.postgres.database import Database, Record
from cortex.store.rows import row_of, rows_of

CANCEL_MAX = 500
ADOPT_MAX = 500
WITHDRAW_MAX = 5_000
"""Held children in one statement: a job may hold a hundred thousand."""


@attrs.frozen(kw_only=True)
class ChildPlace:
    """Where a child stands among those of its step."""

    ordinal: int
    job_id: UUID


@attrs.frozen(kw_only=True)
class _Cut:
    """A job, and one of its children that it needs no more and that has not ended."""

    parent_id: UUID
    step: str
    """The step that has begun the child; empty: the job has ended."""
    status: str
    cancel_reason: str | None
    job_id: UUID | None
    """None: there is none any more."""


async def spawn(
    db: Database,
    *,
    lease: Lease,
    pod_id: UUID,
    step: str,
    first: int,
    ids: Sequence[UUID],
    payloads: Sequence[str],
    terms: ChildTerms,
    let_go: int | None,
) -> SpawnReply:
    """Submit children of a running job in one transaction; those that exist already stay.

    `let_go`: how many of the step may run at once; None: they are held. Safe to repeat. Raises
    `NotFoundError` for an unknown agent, `CapReachedError`, `UnavailableError`.
    """
    row = await db.fetch_one(
        "children.spawn",
        lease.job_id,
        lease.attempt,
        pod_id,
        step,
        first,
        list(ids),
        list(payloads),
        orjson.dumps(terms.to_json()).decode(),
        let_go,
        DEPTH_MAX,
    )
    if row is None:
        raise AssertionError("children.spawn always answers")
    return SpawnReply(verdict=row["verdict"], ordinal=row["ordinal"])


async def adopt(
    db: Database,
    *,
    lease: Lease,
    pod_id: UUID,
    step: str,
    first: int,
    new_ids: Sequence[UUID],
    let_go: int,
) -> AdoptVerdict:
    """Take on what an earlier job of the lineage left at a step; safe to repeat."""
    row = await db.fetch_one(
        "children.adopt", lease.job_id, lease.attempt, pod_id, step, first, list(new_ids), let_go
    )
    if row is None:
        raise AssertionError("children.adopt always answers")
    verdict: AdoptVerdict = row["verdict"]
    return verdict


async def ids(
    db: Database, *, lineage_id: UUID, step: str, first: int, limit: int
) -> list[ChildPlace]:
    """Return the children of a step from an ordinal on."""
    return rows_of(ChildPlace, await db.fetch("children.ids", lineage_id, step, first, limit))


async def outcomes(
    db: Database,
    *,
    job_id: UUID,
    lineage_id: UUID,
    step: str,
    first: int,
    limit: int,
    bytes_max: int,
) -> list[ChildOutcome]:
    """Return how the children of a step ended, from an ordinal on, up to the first that has not.

    As many as fit into `bytes_max` bytes of results, at least one.
    """
    rows = await db.fetch("children.outcomes", lineage_id, step, first, limit, bytes_max, job_id)
    return [_outcome(row) for row in rows]


def _outcome(row: Record) -> ChildOutcome:
    return ChildOutcome(
        ordinal=row["ordinal"],
        job_id=row["job_id"],
        status=row["status"] or JobStatus.CANCELLED,  # it was given up before it was submitted
        result=row["result"],
        error=row["error_message"],
        error_code=row["error_code"],
        error_class=row["error_class"],
        by=row["cancelled_by"],
        reason=row["cancel_reason"],
        is_left=row["is_left"],
    )


@attrs.frozen(kw_only=True)
class CutPass:
    """What one pass has done to the children of jobs that have ended."""

    count: int
    """Children that were given up, cancelled or asked to end."""
    left: int
    """Jobs that still have children to be cancelled."""


async def cut(db: Database, *, limit: int = CANCEL_MAX) -> CutPass:
    """Cancel children of jobs that have ended, about `limit`. Safe to repeat, and to break off.

    What these jobs held is given up first: whoever was just submitting one of those has done so by
    then, and its job is seen.
    """
    if not await db.fetch("children.cuts", 1):
        return CutPass(count=0, left=0)
    count = 0
    while (row := await db.fetch_one("children.withdraw", WITHDRAW_MAX)) and row["count"]:
        count += row["count"]
    cuts = rows_of(_Cut, await db.fetch("children.cuts", limit))
    for (parent_id, step), group in groupby(cuts, key=lambda each: (each.parent_id, each.step)):
        of_parent = list(group)
        ids = sorted(each.job_id for each in of_parent if each.job_id is not None)
        if ids:
            status = None if step else of_parent[0].status
            reason = reason_of_cut(status, of_parent[0].cancel_reason)
            cancelled = await db.fetch("jobs.cancel", ids, f"job:{parent_id}", reason)
            count += sum(not each["is_outdated"] for each in cancelled)
    places = {(each.parent_id, each.step) for each in cuts}
    parents = sorted({parent_id for parent_id, _ in places})
    gone = await db.fetch_one("children.forget_cuts", parents)
    return CutPass(count=count, left=max(0, len(places) - (gone["count"] if gone else 0)))


# --- the tree

TREE_MAX: Final = 500
"""Jobs of one tree."""
SHOWN_MAX: Final = 10
"""Children of one job that a tree shows; it counts the others."""


@attrs.frozen(kw_only=True)
class TreeJob:
    """A job of a tree: its root, or a child."""

    id: UUID
    type: str
    status: JobStatus | None
    """None: it is not submitted, or was given up before that."""
    waiting_on: str | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error_message: str | None
    has_children: bool
    now: datetime
    step: str | None
    """Of its parent; None: it has none."""
    ordinal: int | None
    is_detached: bool
    is_withdrawn: bool
    """It was never submitted: its parent has ended."""
    parent_id: UUID | None
    budgets: tuple[OwnBudget, ...]
    """Budgets of the job itself: the share that its parent gave it, and what people set."""


@attrs.frozen(kw_only=True)
class StepCount:
    """How many children of a step are in a state."""

    step: str
    status: JobStatus | None
    """None: not submitted."""
    is_withdrawn: bool
    """They never will be."""
    count: int


@attrs.frozen(kw_only=True)
class JobTree:
    """A job with the jobs below it, as far as they are shown."""

    job: TreeJob
    counts: tuple[StepCount, ...]
    """Of all its children."""
    children: tuple["JobTree", ...]
    """Some of them: those that failed, run or wait come first."""


async def tree(db: Database, job_id: UUID, *, shown_max: int = SHOWN_MAX) -> JobTree:
    """Return a job and those below it, `shown_max` of each job. Raises `NotFoundError`."""
    row = await db.fetch_one("children.tree_root", job_id)
    if row is None:
        raise NotFoundError(f"there is no job {job_id}")
    root = row_of(TreeJob, row)
    children: dict[UUID, list[TreeJob]] = {}
    counts: dict[UUID, list[StepCount]] = {}
    level, number = [root.id] if root.has_children else [], 1
    for _ in range(DEPTH_MAX + 1):
        if not level:
            break
        for each in await db.fetch("children.tree_counts", level):
            counts.setdefault(each["parent_id"], []).append(row_of(StepCount, each))
        found = rows_of(TreeJob, await db.fetch("children.tree_jobs", level, shown_max))
        found = found[: max(0, TREE_MAX - number)]
        number += len(found)
        for child in found:
            if child.parent_id is not None:
                children.setdefault(child.parent_id, []).append(child)
        level = [each.id for each in found if each.has_children]

    def below(job: TreeJob) -> JobTree:
        return JobTree(
            job=job,
            counts=tuple(counts.get(job.id, ())),
            children=tuple(below(each) for each in children.get(job.id, ())),
        )

    return below(root)
