"""One job, followed: itself and what happened to it since the last look."""

from uuid import UUID

from cortex.store import jobs
from cortex.store.database import Database
from cortex_tui.backend.protocol import JobRow

ROWS_MAX = 1_000
"""Of a look: a job with more steps comes in several."""


class StoreJob:
    """One job, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def follow(self, job_id: UUID, *, after_step: int) -> JobRow:
        """Return a job, and under `steps` those after a number; some of them when they are many."""
        return await jobs.follow(self._db, job_id, after_step=after_step)
