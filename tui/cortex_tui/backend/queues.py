"""Worker queues, read from Postgres, paused and resumed there."""

from collections.abc import Sequence

from cortex.postgres.database import Database
from cortex.store import queues
from cortex.store.queues import QueueRow


class StoreQueues:
    """The list of queues, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[QueueRow]:
        """Read the default queue, then paused ones, then those with tasks."""
        return await queues.page(self._db)

    async def pause(self, queue: str | None, *, by: str, reason: str) -> str:
        """Stop claims from a queue; return the outcome."""
        is_new = await queues.pause(self._db, queue, by=by, reason=reason)
        return "paused" if is_new else "nothing was done: it was paused already"

    async def resume(self, queue: str | None, *, by: str, reason: str) -> str:
        is_changed = await queues.resume(self._db, queue, by=by, reason=reason)
        return "goes on" if is_changed else "nothing was done: it is no longer paused"
