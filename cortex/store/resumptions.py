"""How people let failed jobs go on, or put them before an operator: each time with who and why."""

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
    """Keep others from resuming the job until this database is closed.

    Raises `ConflictError` while another one is at it.
    """
    (row,) = await db.hold("timeouts.lock_resume", job_id)
    if not row["is_held"]:
        raise ConflictError(f"job {job_id} is being resumed by somebody else just now")


@attrs.frozen(kw_only=True)
class Settled:
    """What the record of a job's committed steps says about its files."""

    at: datetime
    """When the last of them was done; without one, when the job was first started."""
    files: frozenset[str]
    """Those files, of the ones asked about, that some of them names."""


async def settled(db: Database, job_id: UUID, *, files: Sequence[str]) -> Settled:
    """Return what must not be taken for the leavings of a step that was interrupted."""
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
    """Make the job that goes on from a failed one, and record the choice, in one transaction.

    `set_aside` is plain JSON: where the uncommitted work of the failed one has gone. Repeating it
    with the same new id changes nothing more. Raises `NotFoundError` for a job that has not
    failed, `ConflictError` for one that was retried or discarded before.
    """

    async def work(connection: Connection) -> UUID:
        inside = db.bound(connection)
        (made,) = await dead_letters.resubmit(inside, [wanted], by=by, reason=reason)
        if made.error is not None:
            raise made.error
        told = {"choice": choice.value, "retried_as": str(wanted.new_id), "set_aside": set_aside}
        await _note(inside, wanted.job_id, "job_resumed", {"by": by, "reason": reason} | told)
        return wanted.new_id

    return await db.transact(work)


async def escalate(db: Database, job_id: UUID, *, by: str, reason: str) -> None:
    """Say that an operator must do something about a failed job before it can go on.

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
