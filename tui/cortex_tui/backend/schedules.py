"""Schedules, read and changed in Postgres."""

from collections.abc import Sequence
from typing import Final

from cortex.postgres.database import Database
from cortex.store.background import schedules
from cortex.store.background.schedules import InstantRow, ScheduleRow

SHOWN_MAX: Final = 200
INSTANTS_MAX: Final = 50


class StoreSchedules:
    """The list of schedules, backed by the database."""

    def __init__(self, db: Database, *, credential: str) -> None:
        self._db = db
        self._credential = credential

    async def page(self) -> Sequence[ScheduleRow]:
        return await schedules.page(self._db, limit=SHOWN_MAX)

    async def instants(self, name: str) -> Sequence[InstantRow]:
        """Read what became of the last instants of a schedule, the newest first."""
        return await schedules.instants(self._db, name, limit=INSTANTS_MAX)

    async def pause(self, name: str, *, by: str, reason: str) -> str:
        """Fire nothing until it is resumed; return the outcome."""
        await schedules.pause(self._db, name, by=by, reason=reason)
        return "paused"

    async def resume(self, name: str, *, by: str, reason: str) -> str:
        await schedules.resume(self._db, name, by=by, reason=reason)
        return "goes on"

    async def trigger(self, name: str, *, by: str, reason: str) -> str:
        """Submit a job of a schedule now; return the outcome."""
        job_id = await schedules.trigger(
            self._db, name, by=by, credential=self._credential, reason=reason
        )
        return f"submitted {job_id}"
