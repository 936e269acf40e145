"""Worker queues, pauses and limits, read from Postgres; pauses are made and ended there."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.queueing.pauses import Pausable
from cortex.postgres.database import Database
from cortex.store import limits, pauses, queues
from cortex.store.limits import LimitRow
from cortex.store.pauses import PauseRow
from cortex.store.queues import QueueRow

LIMITS_MAX: Final = 200


class StoreQueues:
    """The list of queues, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[QueueRow]:
        """Read the default queue, then paused ones, then those with tasks."""
        return await queues.page(self._db)

    async def pauses(self, only: Pausable | None = None) -> Sequence[PauseRow]:
        """Read what is paused, the latest first; or the pause of one target."""
        return await pauses.page(self._db, only)

    async def limits(self) -> Sequence[LimitRow]:
        """Read the limits of job types, by name."""
        return await limits.page(self._db, limit=LIMITS_MAX)

    async def pause(self, target: Pausable, *, by: str, reason: str) -> str:
        """Keep jobs from starting; return the outcome."""
        is_new = await pauses.pause(self._db, target, by=by, reason=reason)
        return "paused" if is_new else "nothing was done: it was paused already"

    async def resume(self, target: Pausable, *, by: str, reason: str) -> str:
        is_changed = await pauses.resume(self._db, target, by=by, reason=reason)
        return "goes on" if is_changed else "nothing was done: it is no longer paused"
