"""What the database tells of the whole system, for a scrape: counts of what is unfinished."""

import attrs

from cortex.domain.dead_letter import LetterState
from cortex.domain.job import JobStatus
from cortex.store.database import Database

COUNTED_MAX = 100_000
"""Of each: more is too much, too."""


@attrs.frozen(kw_only=True)
class Figures:
    """Counts stop at a limit, which was given; ages are in seconds."""

    jobs: dict[JobStatus, int]
    """Of every state that is not terminal."""
    due_count: int
    """Tasks that any pod could claim: none of paused queues."""
    oldest_due_s: float
    """For how long the oldest has been due, since its attempt ended if it had one; 0: none."""
    letters: dict[LetterState, int]
    """Of the states that wait for somebody."""


async def figures(db: Database, *, limit: int = COUNTED_MAX) -> Figures:
    """Count in one statement, without a look at a finished job."""
    row = await db.fetch_one("metrics.figures", limit)
    if row is None:
        raise AssertionError("metrics.figures always returns one row")
    return Figures(
        jobs={state: row[state.lower()] for state in JobStatus if not state.is_terminal},
        due_count=row["due"],
        oldest_due_s=row["oldest_due_s"],
        letters={state: row[state.lower()] for state in (LetterState.OPEN, LetterState.ESCALATED)},
    )
