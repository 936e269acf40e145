"""One job, followed: itself and what happened to it since the last look."""

from typing import Final
from uuid import UUID

from cortex.store import jobs
from cortex.store.database import Database
from cortex_tui.backend.protocol import JobRow

ROWS_MAX: Final = 500
"""Of each kind in a look: a job with more steps comes in several."""
ALREADY: Final = 2**31 - 1
"""A position after everything: attempts are not shown here."""


class StoreJob:
    """One job, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def follow(self, job_id: UUID, *, after_step: int) -> JobRow:
        after = (ALREADY, ALREADY, after_step)
        row = await jobs.follow(self._db, job_id, after=after, limit=ROWS_MAX)
        return {key: value for key, value in row.items() if key != "now"}
