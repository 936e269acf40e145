"""Log lines of jobs: stored in batches, read in order."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError
from cortex.domain.log_line import Level, LogLine
from cortex.postgres.database import Database
from cortex.store.rows import rows_of, unless_all_null
from cortex.store.tenants import Kind, owned

PLACES_MAX: Final = 20
"""Attempts of one job from which late lines are still read."""
LOOKED_MAX: Final = 10_000
"""Lines of all tenants that are read for a page of one."""
ATTEMPT_MAX: Final = 2**31 - 1
NUMBER_MAX: Final = 2**63 - 1


@attrs.frozen(kw_only=True)
class LogRow:
    """A line that is stored."""

    id: int
    job_id: UUID
    job_type: str | None = None
    """None where it was not asked for, or the job is deleted."""
    attempt: int
    number: int
    at: datetime
    level: Level
    step: str | None
    source: str | None
    message: str
    fields: dict[str, Any] | None
    dropped: int | None
    """Lines that are missing at this place."""
    now: datetime = attrs.field(eq=False)


@attrs.frozen
class LogPlace:
    """How far the lines of one job were read: the last number of each attempt."""

    numbers: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "LogPlace":
        """Read what `str` has written. Raises `UsageError`."""
        numbers = []
        for word in text.split("-") if text else ():
            attempt, sign, number = word.partition(".")
            is_number = all(each.isascii() and each.isdecimal() for each in (attempt, number))
            if not (sign and is_number and int(attempt) <= ATTEMPT_MAX):
                raise UsageError(f"{text!r:.60} is no place in the log of a job")
            numbers.append((int(attempt), min(int(number), NUMBER_MAX)))
        return cls(tuple(sorted(dict(numbers[-PLACES_MAX:]).items())))

    def __str__(self) -> str:
        return "-".join(f"{attempt}.{number}" for attempt, number in self.numbers)

    def after(self, rows: Sequence[LogRow]) -> "LogPlace":
        """Return the place after more lines."""
        numbers = dict(self.numbers)
        for row in rows:
            numbers[row.attempt] = max(row.number, numbers.get(row.attempt, 0))
        return LogPlace(tuple(sorted(numbers.items())[-PLACES_MAX:]))


class LogTail:
    """Follows the lines of all jobs: each once, also those that two pods store at the same time.

    An id is drawn before its line is committed: a lower one may appear later. So the lines of the
    last moments are read again, without those that were read. Lines of lower levels are passed by,
    too: no read begins further back than these moments.
    """

    SETTLE_S: Final = 2.0
    READ_MAX: Final = 5_000

    def __init__(self, after: int) -> None:
        self.after = after
        self._read: OrderedDict[int, float] = OrderedDict()
        self._passed: deque[tuple[float, int]] = deque()
        """When all lines up to which id were read."""

    async def next(self, db: Database, *, least: Level, limit: int, now: float) -> list[LogRow]:
        """Return the next lines. `now`: a clock that only goes forward, in seconds."""
        while self._passed and self._passed[0][0] <= now - self.SETTLE_S:
            self.after = max(self.after, self._passed.popleft()[1])
        while self._read:
            oldest, read_at = next(iter(self._read.items()))
            if read_at > now - self.SETTLE_S and len(self._read) <= self.READ_MAX:
                break
            del self._read[oldest]
            self.after = max(self.after, oldest)
        newest = await newest_id(db)
        rows = rows_of(
            LogRow,
            await db.fetch("logs.after", least.value, self.after, list(self._read), limit),
        )
        if len(rows) < limit:
            self._passed.append((now, newest))
        self.mark(rows, now=now)
        if db.tenant is None:
            return rows
        jobs = list({row.job_id for row in rows})
        own = await owned(db, Kind.JOB, jobs, tenant=db.tenant)
        return [row for row in rows if row.job_id in own]

    def mark(self, rows: Sequence[LogRow], *, now: float) -> None:
        """Note lines that were read elsewhere, too."""
        for row in rows:
            self._read[row.id] = now


async def keep(db: Database, lines: Sequence[LogLine], *, now: float) -> None:
    """Store lines in one statement; safe to repeat. `now`: by the clock of their buffer.

    Raises `InvalidValueError` for what Postgres cannot store; then none of them is stored.
    """
    await db.fetch(
        "logs.keep",
        [line.lease.job_id for line in lines],
        [line.lease.attempt for line in lines],
        [line.number for line in lines],
        [max(0.0, now - line.written_at) for line in lines],
        [line.level.value for line in lines],
        [line.step for line in lines],
        unless_all_null([line.source for line in lines]),
        [line.message for line in lines],
        unless_all_null([line.fields for line in lines]),
        unless_all_null([line.dropped for line in lines]),
    )


async def newest_of_job(
    db: Database,
    job_id: UUID,
    *,
    least: Level = Level.DEBUG,
    attempt: int | None = None,
    step: str | None = None,
    before: tuple[int, int] | None = None,
    limit: int = 500,
) -> list[LogRow]:
    """Return the newest lines of a job in their order, before the line (attempt, number)."""
    before_attempt, before_number = before or (None, None)
    rows = await db.fetch(
        "logs.newest_of_job",
        job_id,
        least.value,
        attempt,
        step,
        before_attempt,
        before_number,
        limit,
    )
    return rows_of(LogRow, rows[::-1], job_type=None)


async def of_job_after(
    db: Database,
    job_id: UUID,
    *,
    place: LogPlace,
    limit: int = 500,
) -> list[LogRow]:
    """Return the next lines of a job after those that were read, in their order."""
    rows = await db.fetch(
        "logs.of_job_after",
        job_id,
        [attempt for attempt, _ in place.numbers],
        [number for _, number in place.numbers],
        limit,
    )
    return rows_of(LogRow, rows, job_type=None)


async def page(
    db: Database,
    *,
    least: Level = Level.DEBUG,
    since_s: float,
    before: int | None = None,
    limit: int = 100,
) -> list[LogRow]:
    """Return the newest lines of all jobs, the newest first, not older than this many seconds."""
    if db.tenant is not None:
        own, _ = await page_of_tenant(
            db, db.tenant, least=least, since_s=since_s, before=before, limit=limit
        )
        return own
    return rows_of(LogRow, await db.fetch("logs.page", least.value, since_s, before, limit))


async def page_of_tenant(
    db: Database,
    tenant: str,
    *,
    least: Level = Level.DEBUG,
    since_s: float,
    before: int | None = None,
    limit: int = 100,
) -> tuple[list[LogRow], int | None]:
    """Return the newest lines of a tenant's jobs, and before which id others may follow.

    Among the newest `LOOKED_MAX` lines of all tenants: there may be fewer than `limit`.
    """
    rows = await db.fetch(
        "logs.page_of_tenant", least.value, since_s, before, limit, tenant, LOOKED_MAX
    )
    head = rows[0]
    shown = rows_of(LogRow, [row for row in rows if row["id"] is not None])
    if len(shown) == limit:
        return shown, shown[-1].id
    has_more = head["looked_count"] == LOOKED_MAX and not head["is_past"]
    return shown, head["last_id"] if has_more else None


async def newest_id(db: Database) -> int:
    """Return the id of the newest line of all jobs; 0: there is none."""
    (row,) = await db.fetch("logs.newest_id")
    return int(row["id"])


async def forget(db: Database, *, kept_s: float, limit: int) -> int:
    """Delete the oldest lines as far as they are this old; return how many."""
    row = await db.fetch_one("logs.forget", kept_s, limit)
    return row["count"] if row else 0
