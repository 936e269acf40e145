"""One job, looked at in Postgres, and heard."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from cortex.domain.budget import Budget, worded
from cortex.store import budgets, job_view
from cortex.store.database import Database
from cortex_tui.backend.listening import Listening
from cortex_tui.backend.protocol import Heard, JobRow, Told
from cortex_tui.backend.rows import without_now

REASON = "raised at the job"


class StoreJob:
    """One job, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def look(self, job_id: UUID, *, after: int | None, limit: int) -> JobRow:
        row = await job_view.look(self._db, job_id, after=after, limit=limit)
        return without_now(row)

    async def steps_before(
        self, job_id: UUID, *, before: int, limit: int
    ) -> Sequence[Mapping[str, Any]]:
        return await job_view.steps_before(self._db, job_id, before=before, limit=limit)

    async def detail(self, job_id: UUID, key: str) -> Mapping[str, Any]:
        return await job_view.detail(self._db, job_id, key)

    def listen(self, job_id: UUID, *, heard: Heard, told: Told) -> Listening:
        return Listening(self._db.profile, job_id, heard=heard, told=told)

    async def raise_budget(self, name: str, *, to: Decimal, by: str) -> str:
        change = await budgets.raise_limit(self._db, name, to=to, by=by, reason=REASON)
        woken_count = change.woken_count
        more_count = woken_count
        while more_count == budgets.WAKE_BATCH:
            more_count = await budgets.wake(self._db, [name])
            woken_count += more_count
        woken = f", {woken_count:,} {'job goes' if woken_count == 1 else 'jobs go'} on"
        return f"{name} is {worded(to, Budget.parse(name).unit)}{woken if woken_count else ''}"
