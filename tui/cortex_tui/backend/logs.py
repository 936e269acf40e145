"""The log lines of a job, read from Postgres."""

from collections.abc import Sequence
from uuid import UUID

from cortex.postgres.database import Database
from cortex.store import logs
from cortex.store.logs import LogPlace, LogRow


class StoreLogs:
    """Log lines, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def newest(self, job_id: UUID, *, limit: int) -> Sequence[LogRow]:
        """Read the newest lines of a job, in their order."""
        return await logs.newest_of_job(self._db, job_id, limit=limit)

    async def after(self, job_id: UUID, *, place: LogPlace, limit: int) -> Sequence[LogRow]:
        """Read the next lines of a job, in their order."""
        return await logs.of_job_after(self._db, job_id, place=place, limit=limit)
