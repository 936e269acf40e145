"""How people resume failed jobs or escalate them to an operator, with who and why."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.errors import ConflictError, NotFoundError, UsageError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.timeouts import Choice, recommended_choice
from cortex.postgres.database import Connection, Database
from cortex.store import dead_letters, facts, jobs
from cortex.store.dead_letters import Resubmission
from cortex.store.facts import Fact
from cortex.store.jobs import ShownJob
from cortex.store.timeouts import Recorded

LOCK: Final = "timeouts.lock_resume"


async def lock(db: Database, job_id: UUID) -> None:
    """Prevent others from resuming the job until `unlock`, or until this database is closed.

    Raises `ConflictError` while another person is resuming it.
    """
    (row,) = await db.hold(LOCK, job_id)
    if not row["is_held"]:
        await unlock(db, job_id)
        raise ConflictError(f"job {job_id} is being resumed by another person right now")


async def unlock(db: Database, job_id: UUID) -> None:
    """Let others resume the job."""
    await db.release(LOCK, job_id)


async def failed(db: Database, job_id: UUID) -> ShownJob:
    """Return the job, or raise `ConflictError` with its state if it has not failed."""
    job = await jobs.show(db, job_id)
    status = job.status
    if status is JobStatus.FAILED:
        return job
    hints = {
        JobStatus.RETRY: f"to retry it now: cortex jobs retry {job_id}",
        JobStatus.WAITING_FOR_APPROVAL: f"to see what it waits for: cortex why {job_id}",
    }
    raise ConflictError(f"job {job_id} is {status.value}, not FAILED", hint=hints.get(status))


async def is_open(db: Database, job_id: UUID) -> bool:
    """Whether the job has not been resumed yet: a successor's files must not be touched."""
    return (await dead_letters.settled(db, [job_id])).get(job_id) is False


def choice_of_clean(job_id: UUID, found: Recorded | None) -> Choice:
    """Return the choice for a job that left nothing; raises `UsageError` for any other."""
    if found is None or found.receipt.is_clean:
        return Choice.RETRY_STEP
    recommended = recommended_choice(found.receipt)
    raise UsageError(
        f"the time-out of job {job_id} may have left work half done; recommended: {recommended}",
        hint=f"to see it: cortex jobs timeouts {short_id(job_id)}; then give --choice "
        f"{recommended}",
    )


@attrs.frozen(kw_only=True)
class CarriedOut:
    """How a failed job goes on."""

    job: UUID
    choice: Choice
    by: str
    reason: str
    resumed_as: UUID | None = None
    """None: it was escalated."""
    set_aside: dict[str, Any] | None = None


async def carry_out(
    db: Database,
    job_id: UUID,
    *,
    choice: Choice,
    by: str,
    reason: str,
    set_aside: dict[str, Any],
    new_id: UUID,
    credential: str | None = None,
) -> CarriedOut:
    """Resume or escalate. Raises as both do."""
    done = CarriedOut(job=job_id, choice=choice, by=by, reason=reason)
    if choice is Choice.ESCALATE:
        await escalate(db, job_id, by=by, reason=reason)
        return done
    wanted = Resubmission(job_id=job_id, new_id=new_id)
    heir = await resume(
        db,
        wanted,
        choice=choice,
        by=by,
        credential=credential,
        reason=reason,
        set_aside=set_aside,
    )
    return attrs.evolve(done, resumed_as=heir, set_aside=set_aside or None)


@attrs.frozen(kw_only=True)
class Settled:
    """What a job's committed steps say about its files."""

    at: datetime
    """When the last of them was done; without one, when the job first started."""
    files: frozenset[str]
    """Of the given files, those that some step names."""


async def settled(db: Database, job_id: UUID, *, files: Sequence[str]) -> Settled:
    """Return what must not be mistaken for leftovers of an interrupted step."""
    row = await db.fetch_one("timeouts.settled", job_id, list(files))
    if row is None:
        raise NotFoundError(f"no job {job_id}")
    return Settled(at=row["at"], files=frozenset(row["files"]))


async def resume(
    db: Database,
    wanted: Resubmission,
    *,
    choice: Choice,
    by: str,
    reason: str,
    set_aside: Mapping[str, Any],
    credential: str | None = None,
) -> UUID:
    """Create the job that continues a failed one, and record the choice, in one transaction.

    `set_aside` is plain JSON: where the uncommitted work of the failed job was moved. Repeating it
    with the same new id changes nothing more. Raises `NotFoundError` for a job that has not failed,
    `ConflictError` for one that was retried or discarded before.
    """

    async def work(connection: Connection) -> UUID:
        inside = db.bound(connection)
        (made,) = await dead_letters.resubmit(
            inside, [wanted], by=by, credential=credential, reason=reason
        )
        if made.error is not None:
            raise made.error
        details = {"choice": choice.value, "retried_as": str(wanted.new_id), "set_aside": set_aside}
        await _note(inside, wanted.job_id, "job_resumed", {"by": by, "reason": reason} | details)
        return wanted.new_id

    return await db.transact(work)


async def escalate(db: Database, job_id: UUID, *, by: str, reason: str) -> None:
    """Record that an operator must act on a failed job before it can continue.

    Raises as `resume` does.
    """

    async def work(connection: Connection) -> None:
        inside = db.bound(connection)
        states = [DeadLetterState.ESCALATED.value]
        if not await inside.fetch("dead_letters.settle", [job_id], states, [reason], by):
            raise await dead_letters.refusal(inside, job_id)
        await _note(inside, job_id, "job_escalated", {"by": by, "reason": reason})

    await db.transact(work)


async def _note(db: Database, job_id: UUID, subtype: str, data: dict[str, Any]) -> None:
    job = await jobs.show(db, job_id)
    fact = Fact(
        type="lifecycle",
        subtype=subtype,
        tenant=job.tenant,
        job_id=job_id,
        attempt=job.attempt,
        agent_id=job.agent_id,
        agent_version=job.agent_version,
        data=data,
    )
    await facts.append(db, [fact])
