"""What happened to a job since the last poll, as facts.

Pure store calls: the command line polls through a `Session`, trio code through a `Port`.
`cortex.cli.jobs.follow` describes the facts to people.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any, Final, assert_never
from uuid import UUID

import attrs

from cortex.domain.job import JobStatus
from cortex.postgres.database import Database
from cortex.store import jobs
from cortex.store.jobs import EndedAttempt, FollowedJob, StepRow, Transition

BATCH_MAX: Final = 500


@attrs.frozen(kw_only=True)
class Moved:
    """The job changed its state."""

    at: datetime
    previous: JobStatus | None
    new: JobStatus
    attempt: int
    pod: str | None
    code_version: str | None
    metadata: dict[str, Any]


@attrs.frozen(kw_only=True)
class Claimed:
    """A pod claimed the job under a new attempt; its state did not change."""

    at: datetime
    attempt: int
    pod: str | None
    code_version: str | None


@attrs.frozen(kw_only=True)
class StepCommitted:
    """A step was committed: it will never run again."""

    at: datetime
    seq: int
    kind: str
    key: str
    attempt: int
    duration_s: float
    usage: dict[str, Any] | None
    cost_usd: Decimal | None


@attrs.frozen(kw_only=True)
class AttemptEnded:
    """An attempt ended before the job did."""

    at: datetime
    attempt: int
    outcome: str
    """`failed`, `retry`, `suspended`, `handed_back`, `pod_died`,
    `process_died` or `lease_expired`."""
    error: str | None
    error_class: str | None
    error_code: str | None
    error_source: str | None
    retry_count: int | None
    due_at: datetime | None
    pod: str | None
    code_version: str | None

    @property
    def ended_at(self) -> datetime:
        return self.at


Fact = Moved | Claimed | StepCommitted | AttemptEnded


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
    facts: list[Fact] = [
        *(_moved(row) for row in history),
        *(_step(row) for row in steps),
        *(_ended(row) for row in attempts),
    ]
    claimed = max([cursor.claimed_attempt, *(f.attempt for f in facts if isinstance(f, Moved))])
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
    kinds = {
        Moved: "moved",
        Claimed: "claimed",
        StepCommitted: "step",
        AttemptEnded: "attempt_ended",
    }
    return {"fact": kinds[type(fact)], **attrs.asdict(fact, recurse=False)}


def is_ending(fact: Fact) -> bool:
    """Whether it is the job's last fact."""
    return isinstance(fact, Moved) and fact.new.is_terminal


def _order(fact: Fact) -> tuple[datetime, int]:
    """Order by time; at the same instant an end precedes what follows from it."""
    match fact:
        case StepCommitted():
            return fact.at, 1
        case AttemptEnded():
            return fact.at, 2
        case Claimed():
            return fact.at, 3
        case Moved():
            return fact.at, 0 if not fact.new.is_terminal else 4
        case _:
            assert_never(fact)


def _moved(row: Transition) -> Moved:
    return Moved(
        at=row.at,
        previous=row.previous,
        new=row.new,
        attempt=row.attempt,
        pod=row.pod,
        code_version=row.code_version,
        metadata=row.metadata,
    )


def _step(row: StepRow) -> StepCommitted:
    return StepCommitted(
        at=row.finished_at,
        seq=row.seq,
        kind=row.kind,
        key=row.key,
        attempt=row.attempt,
        duration_s=(row.finished_at - row.started_at).total_seconds(),
        usage=row.usage,
        cost_usd=row.cost_usd,
    )


def _ended(row: EndedAttempt) -> AttemptEnded:
    return AttemptEnded(
        at=row.ended_at,
        attempt=row.attempt,
        outcome=row.outcome,
        error=row.error,
        error_class=row.error_class,
        error_code=row.error_code,
        error_source=row.error_source,
        retry_count=row.retry_count,
        due_at=row.due_at,
        pod=row.pod,
        code_version=row.code_version,
    )
