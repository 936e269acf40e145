"""How people resume failed jobs or escalate them to an operator, with who and why."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.timeouts import Choice
from cortex.postgres.database import Connection, Database
from cortex.store import dead_letters, facts, jobs
from cortex.store.dead_letters import Resubmission
from cortex.store.facts import Fact


async def lock(db: Database, job_id: UUID) -> None:
    """Prevent others from resuming the job until this database is closed.

    Raises `ConflictError` while another person is resuming it.
    """
    (row,) = await db.hold("timeouts.lock_resume", job_id)
    if not row["is_held"]:
        raise ConflictError(f"job {job_id} is being resumed by another person right now")


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
) -> UUID:
    """Create the job that continues a failed one, and record the choice, in one transaction.

    `set_aside` is plain JSON: where the uncommitted work of the failed job was moved. Repeating it
    with the same new id changes nothing more. Raises `NotFoundError` for a job that has not failed,
    `ConflictError` for one that was retried or discarded before.
    """

    async def work(connection: Connection) -> UUID:
        inside = db.bound(connection)
        (made,) = await dead_letters.resubmit(inside, [wanted], by=by, reason=reason)
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
