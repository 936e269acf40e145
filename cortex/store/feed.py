"""What clients that wait for jobs receive: how jobs ended, and what happened since the last poll.

One statement for any number of jobs. Trio code calls it through a `Port`, other processes directly.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.job import JobStatus
from cortex.domain.job_feed import CodeWait, Happened, JobState, Position
from cortex.postgres.database import Database, Record
from cortex.postgres.dedicated import Dedicated

RESULT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all results of one poll, as they are stored."""
ROWS_MAX: Final = 5_000
"""Of each kind, of all jobs in one poll."""
ROWS_OF_JOB_MAX: Final = 500


@attrs.frozen(kw_only=True)
class Results:
    """The state of some jobs; those that are not named here have not ended."""

    ended: dict[UUID, JobState]
    waiting: dict[UUID, CodeWait]
    """Jobs that wait for code."""
    unknown: frozenset[UUID]
    """Jobs that do not exist."""
    left_out: frozenset[UUID]
    """Jobs that have ended, whose results did not fit into this poll."""


async def results(db: Database | Dedicated, job_ids: Sequence[UUID]) -> Results:
    """Read many jobs at once; if results are large, the first jobs are served first."""
    rows = await db.fetch("feed.results", list(job_ids), RESULT_BYTES_MAX)
    waiting = {r["id"]: CodeWait(r["misfit"]) for r in rows if r["status"] and not r["finished_at"]}
    existing = [row for row in rows if row["finished_at"] is not None]
    return Results(
        ended={row["id"]: _state(row) for row in existing if row["is_whole"]},
        waiting=waiting,
        unknown=frozenset(row["id"] for row in rows if row["status"] is None),
        left_out=frozenset(row["id"] for row in existing if not row["is_whole"]),
    )


async def since(
    db: Database, requested: Sequence[tuple[UUID, Position]]
) -> dict[tuple[UUID, Position], Happened | None]:
    """Return what happened to jobs after positions; None: there is no such job.

    A job without news has no entry. The more jobs, the fewer rows of each are returned at once.
    """
    limit = max(10, min(ROWS_OF_JOB_MAX, ROWS_MAX // max(1, len(requested))))
    positions = [position for _, position in requested]
    rows = await db.fetch(
        "feed.since",
        [job_id for job_id, _ in requested],
        [position.history_id for position in positions],
        [position.ended_attempt for position in positions],
        [position.seq for position in positions],
        [position.claimed_attempt for position in positions],
        limit,
    )
    return {requested[row["n"] - 1]: _happened(row, limit=limit) for row in rows}


def _state(row: Record) -> JobState:
    return JobState(
        job_id=row["id"],
        status=JobStatus(row["status"]),
        finished_at=row["finished_at"],
        result=row["result"],
        error_code=row["error_code"],
        error_class=row["error_class"],
        error_message=row["error_message"],
        cancelled_by=row["cancelled_by"],
        cancel_reason=row["cancel_reason"],
    )


def _happened(row: Record, *, limit: int) -> Happened | None:
    if row["status"] is None:
        return None
    history, attempts, steps = (_rows(row[name]) for name in ("history", "attempts", "steps"))
    return Happened(
        history=history,
        attempts=attempts,
        steps=steps,
        claim=None if row["claim"] is None else orjson.loads(row["claim"]),
        is_ended=row["is_ended"],
        is_complete=not row["is_cut"]
        and all(len(rows) < limit for rows in (history, attempts, steps)),
    )


def _rows(text: str | None) -> list[dict[str, Any]]:
    return [] if text is None else orjson.loads(text)
