"""Which jobs a person's change would apply to, and the change of a few named ones.

Many are changed by a job of type `bulk`: see `cortex.store.bulk`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

import attrs

from cortex.domain.bulk import BulkVerb
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    NotFoundError,
    UsageError,
)
from cortex.domain.idempotency import PERMANENT, error_document
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import (
    UNFINISHED,
    JobFilter,
    JobSituation,
    Refusal,
    why_not_cancel,
    why_not_retry,
)
from cortex.postgres.database import Database
from cortex.store import dead_letters, jobs, retries
from cortex.store.job_pages import page
from cortex.store.jobs import ListedJob

PAGE: Final = 500
PAGES_MAX: Final = 250
"""Pages read for one selection: half a million jobs at most."""

_ENDED: Final = frozenset(status for status in JobStatus if status.is_terminal)

Judge = Callable[[Database, Sequence[ListedJob]], Awaitable[dict[UUID, Refusal | None]]]
One = TypeVar("One", bound="ActedOn")


@attrs.frozen(kw_only=True)
class JobChoice:
    """Jobs that an operation would change."""

    job_ids: list[UUID]
    """Newest first; those of dead letters oldest first."""
    refused: dict[Refusal, int]
    """How many others match, but would stay unchanged."""
    has_more: bool
    """More may match than were read: the limit was reached, or there are too many."""
    failed: int = 0
    """How many of `job_ids` have failed: a retry of one is a new job."""
    at: datetime | None = None
    """When they were read, by the database's clock; None if there were none, or they are marked."""


async def choose(
    db: Database, verb: BulkVerb, which: JobFilter, *, limit: int, through: UUID | None = None
) -> JobChoice:
    """Select the jobs that a person's change would apply to, or the dead letters, oldest first.

    `through`: the job of the newest dead letter that may be among them. Raises what
    `choose_to_cancel` and `choose_to_retry` raise.
    """
    if which.is_about_letters and verb is not BulkVerb.CANCEL:
        found = await dead_letters.choose(db, which, limit=limit + 1, through=through)
        taken = found[:limit]
        return JobChoice(job_ids=taken, refused={}, has_more=len(found) > limit, failed=len(taken))
    if verb is BulkVerb.CANCEL:
        return await choose_to_cancel(db, which, limit=limit)
    return await choose_to_retry(db, which, limit=limit)


async def choose_to_cancel(db: Database, which: JobFilter, *, limit: int) -> JobChoice:
    """Select jobs to cancel; ended ones do not match.

    Raises `UsageError` for a filter that only such jobs match.
    """

    async def judge(_: Database, rows: Sequence[ListedJob]) -> dict[UUID, Refusal | None]:
        return {row.id: why_not_cancel(row.status) for row in rows}

    which = _actable(which, _ENDED, "cancelled")
    return await _choose(db, which, limit=limit, judge=judge)


async def choose_to_retry(db: Database, which: JobFilter, *, limit: int) -> JobChoice:
    """Select jobs to retry now; of those that have ended only failed ones, if requested.

    Raises `UsageError` for a filter that only others match, or jobs that were not tried yet.
    """

    async def judge(db: Database, rows: Sequence[ListedJob]) -> dict[UUID, Refusal | None]:
        return await why_not_retried(db, [row.id for row in rows])

    never = {*_ENDED, JobStatus.PENDING} - {JobStatus.FAILED}
    which = _actable(which, never, "tried again now")
    return await _choose(db, which, limit=limit, judge=judge)


async def choose_marked_to_cancel(db: Database, job_ids: Sequence[UUID]) -> JobChoice:
    """Select jobs to cancel among marked ones; counts those that are gone."""
    rows = await db.fetch("retries.standing", list(job_ids))
    judged = {row["id"]: why_not_cancel(JobStatus(row["status"])) for row in rows}
    return _of_marked(job_ids, judged)


async def choose_marked_to_retry(db: Database, job_ids: Sequence[UUID]) -> JobChoice:
    """Select jobs to retry now among marked ones; as for cancelling them."""
    standings = await _standings(db, job_ids)
    judged = {each: why_not_retry(standing) for each, standing in standings.items()}
    failed = [each for each, situation in standings.items() if situation.status is JobStatus.FAILED]
    return _of_marked(job_ids, judged, failed)


def _actable(which: JobFilter, never: Collection[JobStatus], acted: str) -> JobFilter:
    """Leave out states in which a job never qualifies: there may be any number of such jobs."""
    if which.is_about_letters:
        which = which.with_states(JobStatus.FAILED)
    elif not which.statuses:
        return which.with_states(*UNFINISHED)
    left = tuple(each for each in which.states if each.status not in never)
    if not left:
        states = " or ".join(status.value for status in which.statuses)
        raise UsageError(f"no job that is {states} can be {acted}")
    return attrs.evolve(which, states=left)


async def _choose(db: Database, which: JobFilter, *, limit: int, judge: Judge) -> JobChoice:
    chosen: list[UUID] = []
    refused: Counter[Refusal] = Counter()
    failed = 0
    place = at = None
    for _ in range(PAGES_MAX):
        jobs_page = await page(db, which, before=place, limit=PAGE)
        at = at or next((row.now for row in jobs_page.jobs), None)
        judged = await judge(db, jobs_page.jobs)
        dead = {row.id for row in jobs_page.jobs if row.status is JobStatus.FAILED}
        for job_id, why_not in judged.items():
            if why_not is not None:
                refused[why_not] += 1
            elif len(chosen) < limit:
                chosen.append(job_id)
                failed += job_id in dead
            else:
                return JobChoice(
                    job_ids=chosen, refused=_some(refused), has_more=True, failed=failed, at=at
                )
        place = jobs_page.next
        if place is None:
            break
    return JobChoice(
        job_ids=chosen, refused=_some(refused), has_more=place is not None, failed=failed, at=at
    )


def _of_marked(
    job_ids: Sequence[UUID],
    judged: Mapping[UUID, Refusal | None],
    failed: Collection[UUID] = (),
) -> JobChoice:
    """Return which of the marked jobs would be changed, in their order."""
    whys = {job_id: judged.get(job_id, Refusal.GONE) for job_id in job_ids}
    refused = Counter(why_not for why_not in whys.values() if why_not is not None)
    chosen = [job_id for job_id, why_not in whys.items() if why_not is None]
    dead = sum(each in failed for each in chosen)
    return JobChoice(job_ids=chosen, refused=_some(refused), has_more=False, failed=dead)


async def why_not_retried(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, Refusal | None]:
    """Return for each job, in this order, why it cannot be retried now; None: it can."""
    standings = await _standings(db, job_ids)
    return {each: why_not_retry(standings[each]) for each in job_ids if each in standings}


async def _standings(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, JobSituation]:
    """Return the situations of jobs towards a retry; failed ones with whether they were settled."""
    rows = {row["id"]: row for row in await db.fetch("retries.standing", list(job_ids))}
    failed = [each for each, row in rows.items() if row["status"] == JobStatus.FAILED]
    settled = await dead_letters.settled(db, failed) if failed else {}
    return {
        job_id: JobSituation(
            status=JobStatus(row["status"]),
            waiting_on=row["waiting_on"],
            task_state=row["task_state"],
            is_later=bool(row["is_later"]),
            is_unfit=row["is_unfit"],
            is_settled=settled.get(job_id),
        )
        for job_id, row in rows.items()
    }


def why_not_resubmitted(error: CortexError) -> Refusal:
    """Return why a selected dead letter was not retried after all."""
    match error:
        case ConflictError():
            return Refusal.SETTLED
        case NotFoundError():
            return Refusal.ENDED
        case _:
            return Refusal.TOO_LARGE


def _some(counts: Counter[Refusal]) -> dict[Refusal, int]:
    return {why_not: counts[why_not] for why_not in Refusal if counts[why_not]}


# --- Operations on several jobs at once: a row for each, with its own error.


@attrs.frozen(kw_only=True)
class ActedOn:
    """The result for one job of several; a refused job has only the error."""

    id: UUID
    status: JobStatus | None = None
    waiting_on: str | None = None
    error: Mapping[str, str | None] | None = None
    """As `error_document` makes it."""


@attrs.frozen(kw_only=True)
class CancelledOne(ActedOn):
    """A job that was cancelled, or whose pod has to stop it."""

    pod: str | None = None
    """The pod that still has to stop it."""


@attrs.frozen(kw_only=True)
class RetriedOne(ActedOn):
    """A job that is retried at once."""

    retried_as: UUID | None = None
    """The new job that continues a failed one."""


async def cancel_each(
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str
) -> list[CancelledOne]:
    """Cancel jobs, or request it from their pods."""

    async def ask(job_id: UUID) -> CancelledOne:
        after = (await jobs.cancel(db, job_id, by=by, reason=reason)).after
        is_asked = after is JobStatus.RUNNING
        pod = (await jobs.show(db, job_id)).pod if is_asked else None
        return CancelledOne(id=job_id, status=after, pod=pod)

    return await _act_on_each(job_ids, ask, CancelledOne)


async def retry_each(
    db: Database,
    job_ids: Sequence[UUID],
    *,
    by: str,
    reason: str,
    new_id: Callable[[], UUID],
    credential: str | None = None,
) -> list[RetriedOne]:
    """Retry jobs at once; `new_id` makes the ids of the jobs that continue failed ones."""

    async def let_go(job_id: UUID) -> RetriedOne:
        done = await retries.retry_now(
            db, job_id, by=by, credential=credential, reason=reason, new_id=new_id
        )
        return RetriedOne(
            id=job_id,
            status=done.status,
            waiting_on=done.waiting_on,
            retried_as=done.retried_as,
        )

    return await _act_on_each(job_ids, let_go, RetriedOne)


async def _act_on_each(
    job_ids: Sequence[UUID],
    action: Callable[[UUID], Awaitable[One]],
    kind: type[One],
) -> list[One]:
    """Apply an action to jobs; a permanent error of one job does not stop the others."""
    rows: dict[UUID, One] = {}
    for job_id in sorted(job_ids):  # in one transaction: one order of locks
        try:
            rows[job_id] = await action(job_id)
        except PERMANENT as error:
            rows[job_id] = kind(id=job_id, error=error_document(error))
    return [rows[job_id] for job_id in job_ids]
