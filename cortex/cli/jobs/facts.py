"""What happened to a job since the last poll, as facts.

Pure store calls: the command line polls through a `Session`, trio code through a `Port`.
`cortex.cli.jobs.follow` describes the facts to people.
"""

from datetime import datetime
from typing import Any, Final, assert_never
from uuid import UUID

import attrs

from cortex.domain.job import JobStatus
from cortex.postgres.database import Database
from cortex.store import jobs
from cortex.store.jobs import (
    EndedAttempt,
    FollowedJob,
    FollowedStep,
    Transition,
    payload_of,
)

BATCH_MAX: Final = 500


@attrs.frozen(kw_only=True)
class Claimed:
    """A pod claimed the job under a new attempt; its state did not change."""

    at: datetime
    attempt: int
    pod: str | None
    code_version: str | None


Fact = Transition | Claimed | FollowedStep | EndedAttempt
"""A change of state, a claim, a committed step, or an attempt that ended before the job did."""


@attrs.frozen
class Cursor:
    """The position in a job's facts."""

    history_id: int = 0
    ended_attempt: int = 0
    seq: int = 0
    claimed_attempt: int = 0


@attrs.frozen(kw_only=True)
class Snapshot:
    """A job at one moment, and the facts since the previous cursor, in order."""

    job: FollowedJob
    facts: list[Fact]
    cursor: Cursor
    is_complete: bool
    """Whether all facts have been read."""

    @property
    def status(self) -> JobStatus:
        return self.job.status

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and all its facts have been read."""
        return self.status.is_terminal and self.is_complete


async def snapshot(db: Database, job_id: UUID, cursor: Cursor) -> Snapshot:
    """Read a job once, in one statement. Raises `NotFoundError`."""
    after = (cursor.history_id, cursor.ended_attempt, cursor.seq)
    job = await jobs.follow(db, job_id, after=after, limit=BATCH_MAX)
    history, attempts, steps = job.history, job.attempts, job.steps
    is_complete = all(len(batch) < BATCH_MAX for batch in (history, attempts, steps))
    if not is_complete and history and history[-1].new.is_terminal:
        history = history[:-1]  # the final fact comes last
    facts: list[Fact] = [*history, *steps, *attempts]
    claimed = max([cursor.claimed_attempt, *(row.attempt for row in history)])
    if job.attempt > claimed and job.locked_at is not None:
        claimed = job.attempt
        facts.append(
            Claimed(at=job.locked_at, attempt=claimed, pod=job.pod, code_version=job.code_version)
        )
    return Snapshot(
        job=job,
        facts=sorted(facts, key=_order),
        cursor=Cursor(
            history_id=history[-1].id if history else cursor.history_id,
            ended_attempt=attempts[-1].attempt if attempts else cursor.ended_attempt,
            seq=steps[-1].seq if steps else cursor.seq,
            claimed_attempt=claimed,
        ),
        is_complete=is_complete,
    )


def document_of(fact: Fact) -> dict[str, Any]:
    """Return a fact as JSON; `fact` names its kind."""
    fields = attrs.asdict(fact, recurse=False)
    match fact:
        case Transition():
            kind, _ = "moved", fields.pop("id")
        case Claimed():
            kind = "claimed"
        case FollowedStep():
            kind, since = "step", fields.pop("started_at")
            chunk = fields.pop("chunk")
            if chunk is not None:
                kind, fields["chunk"] = "emitted", payload_of(chunk)
            fields["duration_s"] = (fields.pop("finished_at") - since).total_seconds()
        case EndedAttempt():
            kind, _ = "attempt_ended", fields.pop("ended_at")
        case _:
            assert_never(fact)
    return {"fact": kind, "at": at_of(fact), **fields}


def is_ending(fact: Fact) -> bool:
    """Whether it is the job's last fact."""
    return isinstance(fact, Transition) and fact.new.is_terminal


def at_of(fact: Fact) -> datetime:
    """Return when it happened."""
    match fact:
        case Transition() | Claimed():
            return fact.at
        case FollowedStep():
            return fact.finished_at
        case EndedAttempt():
            return fact.ended_at
        case _:
            assert_never(fact)


def _order(fact: Fact) -> tuple[datetime, int]:
    """Order by time; at the same instant an end precedes what follows from it."""
    ranks = {FollowedStep: 1, EndedAttempt: 2, Claimed: 3}
    return at_of(fact), 4 if is_ending(fact) else ranks.get(type(fact), 0)
