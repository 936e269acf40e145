"""Bulk operations in the database: the choice of ids, and one slice of changes in one transaction.

A slice may be repeated after a kill or a lost reply: what the operation itself has changed counts
as done. So a cancellation is recognised by its person and reason, a retry by the fact that it left
since the choice, and a new job by its id, which follows from the operation and the failed job.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.bulk import (
    ERROR_MAX,
    BulkChoice,
    BulkCounts,
    BulkFailure,
    BulkOrder,
    BulkProgress,
    BulkRequest,
    BulkResult,
    BulkSlice,
    BulkVerb,
)
from cortex.domain.errors import CortexError, NotFoundError, UsageError
from cortex.domain.job import BULK, DEFAULT_TENANT, JobStatus
from cortex.domain.job_filter import JobFilter, Refusal, parse_filter, why_not_cancel
from cortex.postgres.database import Connection, Database, Record
from cortex.postgres.errors import is_called_off, is_locked
from cortex.store import dead_letters, job_choice
from cortex.store.dead_letters import DISCARD_BATCH, RESUBMIT_BATCH, Resubmission, SettledDeadLetter
from cortex.store.job_choice import JobChoice, why_not_resubmitted
from cortex.store.rows import row_of

CHANGE_BATCH: Final = 200
"""Jobs cancelled or released in one statement, which holds their rows for its time."""
TRIES_MAX: Final = 10


@attrs.frozen
class Resisted:
    """A slice of which nothing was changed: it was too slow, locked, or refused."""

    error: CortexError | None
    """What to report if it was one alone; None: another try may succeed."""


@attrs.frozen(kw_only=True)
class BulkStanding:
    """How far a bulk operation is."""

    status: JobStatus
    progress: BulkProgress | None
    """After its last slice; None before the first one."""
    result: BulkResult | None
    error_message: str | None
    cancelled_by: str | None


async def standing(db: Database, job_id: UUID) -> BulkStanding:
    """Return how far a bulk operation is. Raises `NotFoundError`."""
    row = await db.fetch_one("bulk.progress", job_id)
    if row is None:
        raise NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
    return row_of(BulkStanding, row)


# --- the choice


async def choose(db: Database, job_id: UUID, request: BulkRequest) -> BulkChoice:
    """Fix the ids that a job of type `bulk` will change.

    Jobs that were submitted after it, or after the count, are left alone. Raises `UsageError` for a
    request that makes no sense, or in nobody's name.
    """
    request.check()
    row = await db.fetch_one("bulk.submitter", job_id)
    if row is None or row["submitted_by"] is None:
        raise UsageError("a bulk operation is done in the name of its submitter, and it has none")
    if request.tenant is None and row["tenant"] != DEFAULT_TENANT:
        request = attrs.evolve(request, tenant=row["tenant"])  # of a session that keeps to it
    chosen = await _choose(db, request, before=request.counted_at or row["created_at"])
    slice_max = {BulkVerb.CANCEL: CHANGE_BATCH, BulkVerb.DISCARD: DISCARD_BATCH}
    most = slice_max.get(request.verb, RESUBMIT_BATCH if chosen.failed else CHANGE_BATCH)
    return BulkChoice(
        id=_plain(row["id"]),
        by=row["submitted_by"],
        credential=row["submitted_with"],
        at=row["now"],
        job_ids=tuple(map(_plain, chosen.job_ids)),
        refused={why_not.name.lower(): count for why_not, count in chosen.refused.items()},
        has_more=chosen.has_more,
        slice_max=most,
    )


def _plain(id_: UUID) -> UUID:
    """Return an id as Python's own class, which JSON knows; the driver has another one."""
    return UUID(int=id_.int)


async def _choose(db: Database, request: BulkRequest, *, before: datetime) -> JobChoice:
    is_cancel = request.verb is BulkVerb.CANCEL
    if request.job_ids and request.is_about_letters:
        ids = list(request.job_ids)
        return JobChoice(job_ids=ids, refused={}, has_more=False, failed=len(ids))
    if request.job_ids:
        of_marked = (
            job_choice.choose_marked_to_cancel if is_cancel else job_choice.choose_marked_to_retry
        )
        return await of_marked(db, request.job_ids)
    which = attrs.evolve(parse_filter(request.jobs or ""), tenant=request.tenant)
    if not which.is_about_letters:
        which = _submitted_before(which, before)
    through = request.letters_through
    return await job_choice.choose(db, request.verb, which, limit=request.limit, through=through)


def _submitted_before(which: JobFilter, instant: datetime) -> JobFilter:
    earlier = instant if which.created_before is None else min(instant, which.created_before)
    return attrs.evolve(which, created_before=earlier)


# --- a slice


async def settle(db: Database, order: BulkOrder, job_ids: Sequence[UUID]) -> BulkSlice | Resisted:
    """Change these jobs or dead letters in one transaction, or none of them."""

    async def work(connection: Connection) -> BulkSlice | Resisted:
        inside = db.bound(connection)
        try:
            async with connection.transaction():  # a savepoint: the transaction survives a failure
                counts, failures = await _settle(inside, order, sorted(job_ids))
        except Exception as error:
            refusal = dead_letters.refused(error)
            if refusal is None and not is_locked(error) and not is_called_off(error):
                raise
            return Resisted(refusal)
        return await _slice(inside, len(job_ids), counts, failures)

    return await db.transact(work)


async def give_up(db: Database, job_id: UUID, error: CortexError) -> BulkSlice:
    """Return the slice of one that resists alone: a failure."""
    return await _slice(db, 1, BulkCounts(failed=1), [failure_of(job_id, error)])


async def _slice(
    db: Database, passed: int, counts: BulkCounts, failures: Sequence[BulkFailure]
) -> BulkSlice:
    (row,) = await db.fetch("bulk.turn", BULK)
    return BulkSlice(
        passed=passed,
        counts=counts,
        failures=tuple(failures),
        at=row["now"],
        is_awaited=row["is_awaited"],
    )


async def _settle(
    db: Database, order: BulkOrder, job_ids: Sequence[UUID]
) -> tuple[BulkCounts, list[BulkFailure]]:
    request, tally = order.request, _Tally()
    if not request.is_about_letters:
        change = _cancel if request.verb is BulkVerb.CANCEL else _retry
        await change(db, order, job_ids, tally)
        return tally.counts, []
    if request.verb is BulkVerb.DISCARD:
        done = await dead_letters.discard(db, job_ids, by=order.by, reason=request.reason)
    else:
        done = await _resubmit(db, order, job_ids)
        tally.resubmitted = sum(each.error is None for each in done)
    failures = [failure_of(each.job_id, each.error) for each in done if each.error is not None]
    tally.changed, tally.failed = len(done) - len(failures), len(failures)
    return tally.counts, failures


def failure_of(job_id: UUID, error: CortexError) -> BulkFailure:
    """Return the record of one that could not be changed."""
    text = error.message if error.hint is None else f"{error.message}; {error.hint}"
    return BulkFailure(job_id=job_id, code=error.code, error=text[:ERROR_MAX])


async def _resubmit(
    db: Database, order: BulkOrder, job_ids: Sequence[UUID]
) -> list[SettledDeadLetter]:
    request = order.request
    wanted = [Resubmission(job_id=each, new_id=order.heir_id(each)) for each in job_ids]
    return await dead_letters.resubmit(
        db,
        wanted,
        by=order.by,
        credential=order.credential,
        reason=request.reason,
        agent_version=request.agent_version,
        from_start=request.from_start,
    )


async def _cancel(db: Database, order: BulkOrder, job_ids: Sequence[UUID], tally: "_Tally") -> None:
    left = list(job_ids)
    for _ in range(TRIES_MAX):
        rows = await db.fetch("jobs.cancel", left, order.by, order.request.reason)
        tally.refuse(Refusal.GONE, len(left) - len(rows))
        for row in rows:
            if not row["is_outdated"]:
                tally.cancelled(row, order)
        left = [row["id"] for row in rows if row["is_outdated"]]
        if not left:
            return
    tally.refuse(Refusal.RUNNING, len(left))  # they change all the time


async def _retry(db: Database, order: BulkOrder, job_ids: Sequence[UUID], tally: "_Tally") -> None:
    by, reason = order.by, order.request.reason
    ours = await db.fetch("retries.let_go_since", list(job_ids), by, reason, order.at)
    # By a transaction whose step was lost: they may run by now, or have failed again.
    tally.changed += len(ours)
    left = {*job_ids} - {row["job_id"] for row in ours}
    standing = await db.fetch("retries.standing", list(left))
    failed = sorted(row["id"] for row in standing if row["status"] == JobStatus.FAILED)
    if failed:
        for settled in await _resubmit(db, order, failed):
            tally.settled(settled)
    waiting = sorted(left - {*failed})
    if not waiting:
        return
    rows = await db.fetch("retries.now", waiting, by, reason, order.credential)
    tally.changed += sum(row["is_let_go"] for row in rows)
    tally.refuse(Refusal.GONE, len(waiting) - len(rows))
    stayed = [row["id"] for row in rows if not row["is_let_go"]]
    for why_not in (await job_choice.why_not_retried(db, stayed)).values() if stayed else ():
        # A job that could be released now was just ending its attempt.
        tally.refuse(why_not or Refusal.RUNNING, 1)


@attrs.define
class _Tally:
    changed: int = 0
    asked: int = 0
    resubmitted: int = 0
    failed: int = 0
    refused: Counter[Refusal] = attrs.field(factory=Counter)

    def refuse(self, why_not: Refusal, count: int) -> None:
        self.refused[why_not] += count

    def cancelled(self, row: Record, order: BulkOrder) -> None:
        """Count a job; one that the same person cancelled for the same reason is done."""
        is_ours = (row["before"], row["cancelled_by"], row["cancel_reason"]) == (
            JobStatus.CANCELLED,
            order.by,
            order.request.reason,
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
    def counts(self) -> BulkCounts:
        return BulkCounts(
            changed=self.changed,
            asked=self.asked,
            resubmitted=self.resubmitted,
            refused={
                why_not.name.lower(): self.refused[why_not]
                for why_not in Refusal
                if self.refused[why_not]
            },
            failed=self.failed,
        )
