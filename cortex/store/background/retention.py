"""Retention: the setting, the next batch that may be deleted, its copy, and its deletion.

The database decides what may be deleted, and deletes it only then: see 0023_retention.sql. Reading,
copying and deleting are separate transactions, so that a slow disk holds no locks; what changes in
between stays.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.people import Identity
from cortex.domain.phrases import parse_span
from cortex.postgres.database import Connection, Database
from cortex.store.rows import from_json, row_of

LEAST_S: Final = 86_400.0
"""The shortest period: an idempotency key may return a job's id for a day."""
MOST_S: Final = 36_500 * 86_400.0
COPY_BYTES_MAX: Final = 32 << 20
"""A copy holds at most this much, unless one lineage alone is larger."""


class Kind(StrEnum):
    """What is deleted in batches of its own: finished jobs by their state, and facts."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    FACTS = "FACTS"


@attrs.frozen(kw_only=True)
class RetentionPeriods:
    """For how long what is kept; None: for ever."""

    completed_s: float | None = None
    failed_s: float | None = None
    """Failed and cancelled jobs."""
    facts_s: float | None = None
    """None: those of a job as long as the job."""
    archive: str | None = None
    """The folder in which a copy is written first."""

    @classmethod
    def parse(
        cls, *, completed: str | None, failed: str | None, facts: str | None, archive: str | None
    ) -> "RetentionPeriods":
        """Read spans as people type them. Raises `UsageError`."""
        if completed is failed is facts is None:
            raise UsageError(
                "no period is given", hint="such as --completed 30d --failed 90d --facts 400d"
            )
        if archive is not None and not archive.startswith("/"):
            raise UsageError(f"--archive {archive!r} is not an absolute path")
        return cls(
            completed_s=_period("completed", completed),
            failed_s=_period("failed", failed),
            facts_s=_period("facts", facts),
            archive=archive,
        )


@attrs.frozen(kw_only=True)
class Retention(RetentionPeriods):
    """The setting, with who made it and why."""

    changed_by: str
    changed_at: datetime
    reason: str
    held_until: datetime | None
    """Nothing is deleted before this: the clock was moved, or no runner looked for days."""
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class Turn:
    """Whether this process may delete now."""

    is_mine: bool
    """False: another process is at it."""
    held_s: float | None
    archive: str | None

    @property
    def is_held(self) -> bool:
        """Nothing is deleted, since the clock was moved."""
        return bool(self.held_s)


@attrs.frozen(kw_only=True)
class RetentionBatch:
    """What was read, and of that what may be deleted."""

    kind: Kind
    looked_count: int
    is_at_end: bool
    is_new_pass: bool
    roots: tuple[UUID, ...] = ()
    """First jobs of lineages."""
    facts: tuple[int, ...] = ()
    created_at: datetime | None = None
    job_id: UUID | None = None
    fact_id: int | None = None
    """Where the next batch begins."""

    @property
    def is_empty(self) -> bool:
        """Nothing of it may be deleted."""
        return not self.roots and not self.facts


@attrs.frozen(kw_only=True)
class RetentionCopy:
    """The batch as lines of JSON; smaller than asked for if that would be too large."""

    batch: RetentionBatch
    lines: tuple[str, ...]
    facts_through: int | None
    """Facts after this one are not in it."""
    at: datetime


@attrs.frozen(kw_only=True)
class Deleted:
    """The result of one batch."""

    jobs: int = 0
    facts: int = 0
    is_skipped: bool = False


async def current(db: Database) -> Retention | None:
    """Return the setting; None: everything is kept."""
    row = await db.fetch_one("retention.current")
    return None if row is None else row_of(Retention, row)


async def put(
    db: Database, periods: RetentionPeriods, *, by: Identity, reason: str
) -> RetentionPeriods | None:
    """Set what is kept for how long, or nothing at all (all periods None); return it as before."""
    row = await db.fetch_one(
        "retention.set",
        periods.completed_s,
        periods.failed_s,
        periods.facts_s,
        periods.archive,
        by.document(),
        reason,
    )
    before: dict[str, Any] | None = from_json(row["before"]) if row else None
    return None if before is None else RetentionPeriods(**before)


async def turn(db: Database) -> Turn | None:
    """Return whether something is to be deleted now; None: nothing is ever deleted.

    It also notes the time, so that a clock that is moved later shows.
    """
    row = await db.fetch_one("retention.turn")
    return None if row is None else row_of(Turn, row)


async def next_batch(db: Database, kind: Kind, *, limit: int) -> RetentionBatch | None:
    """Read the next of a kind, oldest first; None: nothing of that kind is deleted."""
    if kind is Kind.FACTS:
        row = await db.fetch_one("retention.facts", limit)
        if row is None:
            return None
        return RetentionBatch(
            kind=kind,
            looked_count=row["looked_count"],
            is_at_end=row["looked_count"] < limit,
            is_new_pass=row["is_new_pass"],
            facts=tuple(row["facts"]),
            fact_id=row["fact_id"],
        )
    row = await db.fetch_one("retention.jobs", kind.value, limit)
    if row is None:
        return None
    return RetentionBatch(
        kind=kind,
        looked_count=row["looked_count"],
        is_at_end=row["looked_count"] < limit,
        is_new_pass=row["is_new_pass"],
        roots=tuple(row["roots"]),
        created_at=row["created_at"],
        job_id=row["job_id"],
    )


async def copy(db: Database, batch: RetentionBatch) -> RetentionCopy:
    """Return the records of a batch as JSON, one a line."""
    (newest,) = await db.fetch("retention.newest_fact")
    if batch.kind is Kind.FACTS:
        lines = [row["line"] for row in await db.fetch("retention.copy_of_facts", batch.facts)]
        return RetentionCopy(batch=batch, lines=tuple(lines), facts_through=None, at=newest["now"])
    copied: list[UUID] = []
    lines = []
    size = 0
    for root in batch.roots:
        more = [row["line"] for row in await db.fetch("retention.copy_of_lineage", root)]
        size += sum(map(len, more))
        if size > COPY_BYTES_MAX and copied:
            # The rest is read again: the place stays before it.
            batch = attrs.evolve(batch, is_at_end=False, created_at=None, job_id=None)
            break
        copied.append(root)
        lines += more
    return RetentionCopy(
        batch=attrs.evolve(batch, roots=tuple(copied)),
        lines=tuple(lines),
        facts_through=newest["id"],
        at=newest["now"],
    )


async def delete(
    db: Database, batch: RetentionBatch, *, facts_through: int | None = None
) -> Deleted:
    """Delete what of a batch may still be deleted, and note how far was read."""

    async def work(connection: Connection) -> Deleted:
        inside = db.bound(connection)
        mine = await turn(inside)
        if mine is None or not mine.is_mine:
            return Deleted(is_skipped=True)
        jobs = facts = 0
        if batch.roots and (
            row := await inside.fetch_one("retention.delete_jobs", batch.roots, facts_through)
        ):
            jobs = row["jobs"]
        if batch.facts and (row := await inside.fetch_one("retention.delete_facts", batch.facts)):
            facts = row["count"]
        await inside.fetch(
            "retention.place",
            batch.kind.value,
            batch.created_at,
            batch.job_id,
            batch.fact_id,
            batch.is_at_end,
            batch.is_new_pass,
        )
        return Deleted(jobs=jobs, facts=facts)

    return await db.transact(work)


async def forget_upkeep(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete jobs of built-in schedules that ended well this long ago; return how many."""
    row = await db.fetch_one("retention.forget_upkeep", kept_s, limit)
    return row["count"] if row else 0


def _period(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_span(text)
    except UsageError as error:
        raise UsageError(f"--{name} {error.message}", hint="such as 30d") from error
    if not LEAST_S <= seconds <= MOST_S:
        raise UsageError(f"--{name} {text} is not between 1d and {MOST_S / 86_400:.0f}d")
    return seconds
