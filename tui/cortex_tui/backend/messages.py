"""Messages of the outbox, read and changed in Postgres."""

from collections.abc import Sequence
from typing import Final

from cortex.postgres.database import Database
from cortex.store.background import outbox
from cortex.store.background.outbox import MessageChoice, MessageHead, MessageRow

SHOWN_MAX: Final = 200
"""Of the failed ones, and of the others."""
SUBSCRIPTIONS_MAX: Final = 50
"""Rows of one message."""


class StoreMessages:
    """The messages that were not sent, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[MessageHead]:
        """Read failed messages, the newest first, then the others, the oldest first."""
        return await outbox.unsent(self._db, limit=SHOWN_MAX)

    async def show(self, row: MessageHead) -> Sequence[MessageRow]:
        """Read a message in full, once for each of its subscriptions."""
        return await outbox.page(self._db, message_id=row.id, limit=SUBSCRIPTIONS_MAX)

    async def retry(self, row: MessageHead, *, by: str, reason: str) -> str:
        """Send a failed message again; return the outcome.

        Raises `ConflictError` if it is not failed any more.
        """
        await outbox.retry(self._db, _one(row), by=by, reason=reason)
        return "is sent again"

    async def discard(self, row: MessageHead, *, by: str, reason: str) -> str:
        """Delete a message that was not sent; return the outcome. Raises as `retry`."""
        await outbox.discard(self._db, _one(row), by=by, reason=reason)
        return "discarded"


def _one(row: MessageHead) -> MessageChoice:
    return MessageChoice(message_id=row.id, subscription=row.subscription, limit=1)
