"""Dead letters: one for each failed job, and the jobs that continue them.

The database writes a dead letter when a job fails, unless people's decision failed it: such a job
can be continued all the same. A failed job is continued or discarded once: a later request gets an
error that names who did it and when.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
import orjson

from cortex.domain.argument_check import PayloadChecker, check_payload
from cortex.domain.dead_letter import (
    UNRESOLVED,
    DeadLetter,
    DeadLetterDetail,
    DeadLetterGroup,
    DeadLetterState,
    PayloadEdit,
)
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    DeniedError,
    InvalidValueError,
    NotFoundError,
    RejectedError,
    UnavailableError,
)
from cortex.domain.idempotency import error_document
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import DEAD, JobFilter, like
from cortex.domain.phrases import utc_time
from cortex.postgres.database import Database, Record
from cortex.postgres.errors import is_overdue, of_statement
from cortex.store import codes
from cortex.store.jobs import payload_of
from cortex.store.lost_replies import repeat_if_lost
from cortex.store.rows import row_of, rows_of

RESUBMIT_BATCH: Final = 20
"""Dead letters retried in one statement, which copies all their steps within its time."""
DISCARD_BATCH: Final = 500
KNOWN_MAX: Final = 1000
COUNTED_MAX: Final = 10_000
"""Dead letters of one filter that are counted by their errors: the newest."""
LOOKED_MAX: Final = 5_000
"""Errors, and dead letters, that are read for suggestions."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class KnownValues:
    """The values of one kind in dead letters."""

    names: list[str]
    is_all: bool
    """There are no others; if False, these are from the dead letters that were read."""


@attrs.frozen
class NewestLetters:
    """Dead letters of one error, newest first."""

    letters: list[DeadLetter]
    is_all: bool
    """There are no others; if False, these are from the dead letters that were read."""


@attrs.frozen(kw_only=True)
class Resubmission:
    """A failed job, and the new job that will continue it."""

    job_id: UUID
    new_id: UUID
    delay_s: float = 0.0
    edit: PayloadEdit | None = None
    """Another payload for the new job."""


@attrs.frozen(kw_only=True)
class SettledDeadLetter:
    """The result of a request to retry or discard one dead letter."""

    job_id: UUID
    retried_as: UUID | None = None
    error: CortexError | None = None
    """Why nothing was done."""


def resubmissions(
    job_ids: Sequence[UUID],
    *,
    new_id: Callable[[], UUID],
    rate: float,
    edit: PayloadEdit | None = None,
) -> list[Resubmission]:
    """Return what to resubmit: so many of the new jobs become due each second."""
    return [
        Resubmission(job_id=job_id, new_id=new_id(), delay_s=float(number // rate), edit=edit)
        for number, job_id in enumerate(job_ids)
    ]


async def resubmit(
    db: Database,
    wanted: Sequence[Resubmission],
    *,
    by: str,
    reason: str,
    credential: str | None = None,
    agent_version: int | None = None,
    from_start: bool = False,
) -> list[SettledDeadLetter]:
    """Create jobs that continue failed ones, settle their dead letters; results in this order.

    A new job has its origin's steps, so that it runs none of them again, unless `from_start` or
    an `agent_version` with another specification, which would need other steps. It does not have
    a model response that failed the origin, nor what came after: the model is called again.
    `NEWEST` is each agent's newest version, None the version that the job had.
    Each batch is one transaction. Repeating it with the same new ids changes nothing more.
    Raises `UnavailableError` when several jobs have more steps than can be copied in time; a
    single such job is reported like other refusals.
    """

    async def retry(batch: Sequence[Resubmission]) -> list[SettledDeadLetter]:
        try:
            await db.fetch(
                "dead_letters.retry",
                [each.job_id for each in batch],
                [each.new_id for each in batch],
                [each.delay_s for each in batch],
                agent_version,
                from_start,
                by,
                [reason] * len(batch),
                False,  # noqa: FBT003 -- a parameter of the query: not automatic
                [None if each.edit is None else each.edit.payload for each in batch],
                [None if each.edit is None else each.edit.record for each in batch],
                credential,
            )
        except Exception as error:
            if from_start or not is_overdue(error):
                raise
            if len(batch) > 1:
                raise _too_many(batch) from error
            return [SettledDeadLetter(job_id=batch[0].job_id, error=too_large(batch[0].job_id))]
        rows = await _state(db, [each.job_id for each in batch])
        return [_retried(each, rows.get(each.job_id), agent_version) for each in batch]

    return await _in_batches(wanted, [each.job_id for each in wanted], RESUBMIT_BATCH, retry)


async def discard(
    db: Database, job_ids: Sequence[UUID], *, by: str, reason: str
) -> list[SettledDeadLetter]:
    """Discard failed jobs; results in the same order. Repeating it returns the same."""

    async def settle(batch: Sequence[UUID]) -> list[SettledDeadLetter]:
        states = [DeadLetterState.DISCARDED.value] * len(batch)
        await db.fetch("dead_letters.settle", list(batch), states, [reason] * len(batch), by)
        rows = await _state(db, batch)
        return [_discarded(each, rows.get(each), by=by, reason=reason) for each in batch]

    return await _in_batches(job_ids, job_ids, DISCARD_BATCH, settle)


def documents(done: Sequence[SettledDeadLetter]) -> list[dict[str, Any]]:
    """Return results as they are stored under an idempotency key."""
    return [
        {
            "job_id": each.job_id,
            "retried_as": each.retried_as,
            "error": None if each.error is None else error_document(each.error),
        }
        for each in done
    ]


def _arguments(which: JobFilter) -> tuple[object, ...]:
    """Return the parameters of `cortex.letters`; unresolved dead letters if no state is named."""
    named = attrs.evolve(which, letters=which.letters or UNRESOLVED)
    patterns = named.letter_patterns
    if which.statuses and JobStatus.FAILED not in which.statuses:
        patterns = []
    elif not which.fingerprints and named.letters in (UNRESOLVED, tuple(DeadLetterState)):
        patterns = None  # each has one of these states
    texts = (which.types, which.agents, which.queues, which.tenants, which.codes)
    return (
        patterns,
        *(like(each) for each in texts),
        [each.value for each in which.classes] or None,
        like(which.tags),
        like(which.pods),
        [f"%{each}" for each in which.id_suffixes] or None,
        *(which.older_than_s, which.newer_than_s, which.created_after, which.created_before),
        *(which.ended_before_s, which.ended_within_s),
    )


async def groups(
    db: Database, which: JobFilter = DEAD, *, limit: int, looked_max: int = COUNTED_MAX
) -> list[DeadLetterGroup]:
    """Return errors, the latest first, each with its count and its newest dead letter.

    Of the newest `looked_max` matching dead letters; `is_all`: these were all of them.
    """
    rows = await db.fetch(
        "dead_letters.groups",
        *_arguments(which),
        which.is_unresolved,
        limit,
        looked_max,
        which.tenant or db.tenant,
    )
    return rows_of(DeadLetterGroup, rows)


async def page(
    db: Database, which: JobFilter = DEAD, *, before: UUID | None = None, limit: int = 50
) -> list[DeadLetter]:
    """Return dead letters, newest first, older than that of the job `before`."""
    rows = await db.fetch(
        "dead_letters.page",
        *_arguments(which),
        which.is_unresolved,
        before,
        limit,
        which.tenant or db.tenant,
    )
    return rows_of(DeadLetter, rows)


async def newest_of(
    db: Database, fingerprint: str, *, looked_max: int, limit: int
) -> NewestLetters:
    """Return the dead letters of one error among the newest unresolved ones, newest first."""
    rows = await db.fetch("dead_letters.newest_of", fingerprint, looked_max, limit, db.tenant)
    return NewestLetters(rows_of(DeadLetter, rows), is_all=all(row["is_all"] for row in rows))


async def choose(
    db: Database, which: JobFilter, *, limit: int, through: UUID | None = None
) -> list[UUID]:
    """Return the jobs of dead letters to operate on, oldest first, none after `through`."""
    rows = await db.fetch(
        "dead_letters.choose", *_arguments(which), limit, through, which.tenant or db.tenant
    )
    return [row["job_id"] for row in rows]


async def of_jobs(db: Database, job_ids: Sequence[UUID]) -> list[DeadLetter]:
    """Return the dead letters of these jobs in their order, in any state.

    Raises `NotFoundError` for a job that does not exist or has not failed.
    """
    rows = {row["job_id"]: row for row in await db.fetch("dead_letters.of_jobs", list(job_ids))}
    missing = [each for each in job_ids if each not in rows]
    if missing:
        raise await refusal(db, missing[0])
    return rows_of(DeadLetter, [rows[each] for each in job_ids])


async def waiting_for_code(
    db: Database, job_id: UUID, *, find: Callable[[str], PayloadChecker | None]
) -> str | None:
    """Return why a job that continues a failed one would wait for code; None: some code takes it.

    `find`: returns a job type as this process has it.
    """
    letter = await show(db, job_id)
    served = await codes.served(db, letter.type, is_exact=True)
    payload = orjson.dumps(letter.payload).decode()
    own = find(letter.type)
    try:
        check_payload(letter.type, payload, own=own, live=served.codes, is_fit_only=True)
    except InvalidValueError as error:
        return f"{error.message}: the new job waits for code that takes it"
    return None


async def show(db: Database, job_id: UUID) -> DeadLetterDetail:
    """Return a dead letter with data of its job.

    Raises `NotFoundError` for a job that does not exist or has not failed.
    """
    row = await db.fetch_one("dead_letters.show", job_id)
    if row is None:
        raise await refusal(db, job_id)
    changed = row["payload_changes"]
    return row_of(
        DeadLetterDetail,
        row,
        payload=payload_of(row["payload"]),
        payload_changes=None if changed is None else orjson.loads(changed),
    )


async def refusal(db: Database, job_id: UUID) -> CortexError:
    """Return why nothing can be done with a job's dead letter: who settled it, when and how."""
    return _refusal(job_id, (await _state(db, [job_id])).get(job_id))


def refused(error: Exception) -> CortexError | None:
    """Return the error to report for a dead letter; None: another try may succeed."""
    if is_overdue(error):
        return error if isinstance(error, CortexError) else of_statement(error)
    return error if isinstance(error, RejectedError | InvalidValueError) else None


def too_large(job_id: UUID) -> CortexError:
    """Return why a job cannot be continued, and a way out."""
    return RejectedError(
        f"job {job_id} is too large to go on from: its steps were not copied in time",
        hint=f"begin anew, without them: cortex dead retry {job_id} --from-start",
    )


def _too_many(batch: Sequence[Resubmission]) -> CortexError:
    return UnavailableError(
        f"the steps of {len(batch)} jobs, {batch[0].job_id} among them, were not copied in time",
        hint="retry fewer of them at once, or begin anew, without their steps: --from-start",
    )


async def known(db: Database) -> dict[str, KnownValues]:
    """Return the types, codes and tenants of dead letters in any state."""
    rows = await db.fetch("dead_letters.known", KNOWN_MAX, LOOKED_MAX)
    return {row["kind"]: KnownValues(names=row["names"], is_all=row["is_all"]) for row in rows}


async def settled(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, bool]:
    """Return for failed jobs whether they were retried or discarded.

    Those that no new job can continue are left out.
    """
    return {
        job_id: row["retried_as"] is not None if row["is_decision"] else not _is_open(row)
        for job_id, row in (await _state(db, job_ids)).items()
        if row["is_decision"] or row["state"] is not None
    }


def _is_open(row: Record) -> bool:
    return row["state"] in UNRESOLVED


async def _state(db: Database, job_ids: Sequence[UUID]) -> dict[UUID, Record]:
    """Read the current state: a statement that waited for another one has an older snapshot."""
    return {row["job_id"]: row for row in await db.fetch("dead_letters.standing", list(job_ids))}


def _retried(
    request: Resubmission, row: Record | None, agent_version: int | None
) -> SettledDeadLetter:
    if row is not None and row["retried_as"] == request.new_id:
        return SettledDeadLetter(job_id=request.job_id, retried_as=request.new_id)
    if row is not None and (_is_open(row) or (row["is_decision"] and row["retried_as"] is None)):
        return SettledDeadLetter(job_id=request.job_id, error=_no_version(row, agent_version))
    return SettledDeadLetter(job_id=request.job_id, error=_refusal(request.job_id, row))


def _discarded(job_id: UUID, row: Record | None, *, by: str, reason: str) -> SettledDeadLetter:
    requested = (DeadLetterState.DISCARDED, by, reason)
    if row is not None and (row["state"], row["resolved_by"], row["reason"]) == requested:
        return SettledDeadLetter(job_id=job_id)
    return SettledDeadLetter(job_id=job_id, error=_refusal(job_id, row))


def _refusal(job_id: UUID, row: Record | None) -> CortexError:
    """Return why nothing could be done with a dead letter."""
    if row is None:
        return NotFoundError(f"job {job_id} does not exist", hint="list them: cortex dead ls")
    if row["is_decision"] and row["retried_as"] is None:
        what = "was denied" if row["error_code"] == DeniedError.code else "got no decision in time"
        return NotFoundError(
            f"job {job_id} {what}: that is a decision, and no dead letter",
            hint=f"ask again in a new job: cortex jobs retry {job_id}",
        )
    if row["is_decision"]:
        return ConflictError(f"job {job_id} goes on already, as {row['retried_as']}")
    if row["state"] is None and row["status"] == "FAILED":
        what = f"job {job_id} failed too long ago: it got no dead letter"
        return NotFoundError(what, hint="submit it anew: cortex jobs submit")
    if row["state"] is None:
        return NotFoundError(f"job {job_id} is {row['status']}: only failed jobs are dead letters")
    word = row["state"].lower()
    when = utc_time(row["resolved_at"])
    heir = f" as {row['retried_as']}" if row["retried_as"] else ""
    return ConflictError(f"job {job_id} was {word} by {row['resolved_by']} at {when}{heir}")


def _no_version(row: Record, agent_version: int | None) -> CortexError:
    if row["agent"] is None:
        return ConflictError(f"job {row['job_id']} runs no agent that could have another version")
    return NotFoundError(
        f"agent {row['agent']!r} has no version {agent_version}",
        hint=f"see them: cortex agents show {row['agent']}",
    )


async def _in_batches(
    wanted: Sequence[T],
    job_ids: Sequence[UUID],
    size: int,
    work: Callable[[Sequence[T]], Awaitable[list[SettledDeadLetter]]],
) -> list[SettledDeadLetter]:
    """Do batch after batch; repeats one whose reply was lost, which is safe.

    In the order of the jobs, which is that of all locks on dead letters: several batches may be in
    one transaction. The results are in the order of `wanted`.
    """
    order = sorted(range(len(wanted)), key=lambda place: job_ids[place])
    done: dict[int, SettledDeadLetter] = {}
    for start in range(0, len(order), size):
        places = order[start : start + size]
        settled, _ = await repeat_if_lost(partial(work, [wanted[place] for place in places]))
        done.update(zip(places, settled, strict=True))
    return [done[place] for place in range(len(wanted))]
