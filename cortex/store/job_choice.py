"""Bulk operations on all jobs that match a filter: selected first, confirmed, then done by id.

What was confirmed is what is done: a job that matches later is left alone, and one that has changed
meanwhile is counted as such. Each job's record says who changed it, and why.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import attrs

from cortex.domain.dead_letter import DeadLetter, why_no_retry
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from cortex.domain.idempotency import PERMANENT, error_document
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import (
    UNFINISHED,
    DeadLetterSituation,
    JobFilter,
    JobSituation,
    Refusal,
    why_not_cancel,
    why_not_retry,
)
from cortex.postgres.database import Database, Record
from cortex.store import dead_letters, jobs, retries
from cortex.store.dead_letters import Resubmission, SettledDeadLetter
from cortex.store.job_pages import page
from cortex.store.jobs import ListedJob
from cortex.store.lost_replies import repeat_if_lost
from cortex.store.rows import row_of

PAGE: Final = 500
PAGES_MAX: Final = 250
"""Pages read for one selection: half a million jobs at most."""
BATCH: Final = 200
"""Jobs changed in one statement, which holds their rows for its time."""
TRIES_MAX: Final = 10
CLOCK_SLACK_S: Final = 5.0
"""How far the database's clock may be set back while a lost reply is repeated."""

_ENDED: Final = frozenset(status for status in JobStatus if status.is_terminal)

Judge = Callable[[Database, Sequence[ListedJob]], Awaitable[dict[UUID, Refusal | None]]]
One = TypeVar("One", bound="ActedOn")
NewId = Callable[[], UUID]
"""Makes the id of a new job."""


@attrs.frozen(kw_only=True)
class JobChoice:
    """Jobs that an operation would change."""

    job_ids: list[UUID]
    """Newest first."""
    refused: dict[Refusal, int]
    """How many others match, but would stay unchanged."""
    has_more: bool
    """More may match than were read: the limit was reached, or there are too many."""
    failed: int = 0
    """How many of `job_ids` have failed: a retry of one is a new job."""


@attrs.frozen(kw_only=True)
class BulkDone:
    """The result of an operation on selected jobs."""

    changed: int
    asked: int
    """Of those, running jobs: their pods have to stop them."""
    refused: dict[Refusal, int]
    """How many had changed meanwhile."""
    resubmitted: int = 0
    """Of `changed`, failed jobs that new jobs continue."""


class PartlyDoneError(UnavailableError):
    """An operation on selected jobs broke off: `done` is its result so far, `cause` the error.

    If the cause is an `OutcomeUnknownError`, the state of the other jobs is unknown; otherwise they
    are unchanged. Repeated, the operation continues with them.
    """

    def __init__(self, done: BulkDone, *, asked_count: int, verb: str, error: CortexError) -> None:
        super().__init__(
            f"{done.changed:,} of {asked_count:,} {verb} before that: {error.message}",
            hint="run it again to continue",
        )
        self.done, self.cause = done, error


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


async def cancel_chosen(db: Database, job_ids: Sequence[UUID], *, by: str, reason: str) -> BulkDone:
    """Cancel jobs, or request it from their pods; repeating it is safe and counts the same.

    Raises `PartlyDoneError` for an error in the middle.
    """
    counts = _Counts()
    left = sorted(set(job_ids))
    with _partly_done(counts, len(left), "were cancelled or asked to end"):
        for _ in range(TRIES_MAX):
            outdated: list[UUID] = []
            for batch in _batches(left):
                rows, _ = await repeat_if_lost(partial(db.fetch, "jobs.cancel", batch, by, reason))
                counts.refuse(Refusal.GONE, len(batch) - len(rows))
                for row in rows:
                    if row["is_outdated"]:
                        outdated.append(row["id"])
                    else:
                        counts.cancelled(row, by=by, reason=reason)
            left = outdated
            if not left:
                break
    counts.refuse(Refusal.RUNNING, len(left))  # they change all the time
    return counts.done


async def retry_chosen(
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str, new_id: NewId
) -> BulkDone:
    """Retry jobs now, failed ones as new jobs; a fact of each records who did it.

    Raises `PartlyDoneError` for an error in the middle.
    """
    counts = _Counts()
    ids = sorted(set(job_ids))
    standing = await db.fetch("retries.standing", ids)
    failed = sorted(row["id"] for row in standing if row["status"] == JobStatus.FAILED)
    waiting = sorted({*ids} - {*failed})
    with _partly_done(counts, len(ids), "try again now"):
        for batch in _batches(failed):
            wanted = [Resubmission(job_id=each, new_id=new_id()) for each in batch]
            for settled in await dead_letters.resubmit(db, wanted, by=by, reason=reason):
                counts.settled(settled)
        for batch in _batches(waiting):
            began = time.monotonic()
            call = partial(db.fetch, "retries.now", batch, by, reason)
            rows, is_repeated = await repeat_if_lost(call)
            counts.changed += sum(row["is_let_go"] for row in rows)
            counts.refuse(Refusal.GONE, len(batch) - len(rows))
            stayed = [row["id"] for row in rows if not row["is_let_go"]]
            if stayed and is_repeated:
                # Jobs released when the reply was lost may run by now, or have ended.
                since_s = time.monotonic() - began + CLOCK_SLACK_S
                ours = await db.fetch("retries.let_go_by", stayed, by, reason, since_s)
                counts.changed += len(ours)
                stayed = sorted({*stayed} - {row["job_id"] for row in ours})
            for why_not in (await why_not_retried(db, stayed)).values() if stayed else ():
                # A job that could be released now was just ending its attempt.
                counts.refuse(why_not or Refusal.RUNNING, 1)
    return counts.done


@contextmanager
def _partly_done(counts: "_Counts", asked_count: int, verb: str) -> Iterator[None]:
    """Raise an error of the body together with the counts until then."""
    try:
        yield
    except CortexError as error:
        done = counts.done
        if not (done.changed or done.refused):
            raise
        raise PartlyDoneError(done, asked_count=asked_count, verb=verb, error=error) from error


@attrs.define
class _Counts:
    changed: int = 0
    asked: int = 0
    resubmitted: int = 0
    refused: Counter[Refusal] = attrs.field(factory=Counter)

    def refuse(self, why_not: Refusal, count: int) -> None:
        self.refused[why_not] += count

    def cancelled(self, row: Record, *, by: str, reason: str) -> None:
        """Count a job; one that the same person cancelled for the same reason is done."""
        is_ours = (row["before"], row["cancelled_by"], row["cancel_reason"]) == (
            JobStatus.CANCELLED,
            by,
            reason,
        )
        why_not = why_not_cancel(JobStatus(row["before"]))
        if why_not is not None and not is_ours:
            self.refuse(why_not, 1)
            return
        self.changed += 1
        self.asked += row["after"] == JobStatus.RUNNING

    def settled(self, letter: SettledDeadLetter) -> None:
        """Count a failed job whose dead letter was to be retried."""
        if letter.error is not None:
            self.refuse(why_not_resubmitted(letter.error), 1)
            return
        self.changed += 1
        self.resubmitted += 1

    @property
    def done(self) -> BulkDone:
        return BulkDone(
            changed=self.changed,
            asked=self.asked,
            refused=_some(self.refused),
            resubmitted=self.resubmitted,
        )


def _actable(which: JobFilter, never: Collection[JobStatus], acted: str) -> JobFilter:
    """Leave out states in which a job never qualifies: there may be any number of such jobs."""
    if not which.statuses:
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
    place = None
    for _ in range(PAGES_MAX):
        jobs_page = await page(db, which, before=place, limit=PAGE)
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
                    job_ids=chosen, refused=_some(refused), has_more=True, failed=failed
                )
        place = jobs_page.next
        if place is None:
            break
    return JobChoice(
        job_ids=chosen, refused=_some(refused), has_more=place is not None, failed=failed
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
    """Return the situations of jobs towards a retry; failed ones with their dead letters."""
    rows = {row["id"]: row for row in await db.fetch("retries.standing", list(job_ids))}
    failed = [each for each, row in rows.items() if row["status"] == JobStatus.FAILED]
    records = await db.fetch("dead_letters.of_jobs", failed) if failed else ()
    dead_letters_by_job = {row["job_id"]: row_of(DeadLetter, row) for row in records}
    return {
        job_id: JobSituation(
            status=JobStatus(row["status"]),
            waiting_on=row["waiting_on"],
            task_state=row["task_state"],
            is_later=bool(row["is_later"]),
            letter=_letter(dead_letters_by_job.get(job_id)),
        )
        for job_id, row in rows.items()
    }


def _letter(letter: DeadLetter | None) -> DeadLetterSituation | None:
    if letter is None:
        return None
    return DeadLetterSituation(
        is_settled=not letter.state.is_unresolved, is_hopeless=bool(why_no_retry(letter))
    )


def why_not_resubmitted(error: CortexError) -> Refusal:
    """Return why a selected dead letter was not retried after all."""
    match error:
        case ConflictError():
            return Refusal.SETTLED
        case NotFoundError():
            return Refusal.ENDED
        case _:
            return Refusal.TOO_LARGE


def _batches(job_ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    for start in range(0, len(job_ids), BATCH):
        yield job_ids[start : start + BATCH]


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
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str, new_id: Callable[[], UUID]
) -> list[RetriedOne]:
    """Retry jobs at once; `new_id` makes the ids of the jobs that continue failed ones."""

    async def let_go(job_id: UUID) -> RetriedOne:
        done = await retries.retry_now(db, job_id, by=by, reason=reason, new_id=new_id)
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
