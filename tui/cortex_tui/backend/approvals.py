"""Approvals, read from and decided in Postgres."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import Vote
from cortex.domain.errors import ConflictError
from cortex.domain.people import Identity
from cortex.postgres.database import Database
from cortex.store import approvals
from cortex.store.approvals import InboxRow, VoteResult
from cortex.view.approvals import over_briefly

CHANNEL: Final = "tui"


class StoreApprovals:
    """The inbox, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def waiting(
        self, *, by: Identity, also: Sequence[UUID], limit: int
    ) -> Sequence[InboxRow]:
        """Read the most urgent open requests, and some by their ids; in no order."""
        return await approvals.waiting(self._db, by=by, also=also, limit=limit)

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        """Read closed requests, the last closed first."""
        return await approvals.decided(self._db, limit=limit)

    async def arguments(
        self, ids: Sequence[UUID], *, chars: int
    ) -> Sequence[tuple[UUID, bytes, str]]:
        """Read ids, digests of the arguments, and the arguments as canonical JSON.

        Returns the first ones, up to `chars` characters in total, and at least one.
        """
        return await approvals.arguments(self._db, ids, chars=chars)

    async def show(self, ids: Sequence[UUID]) -> Sequence[Approval]:
        """Read requests in full, in no order."""
        return await approvals.show_all(self._db, ids)

    async def decide(self, votes: Sequence[Vote]) -> Sequence[VoteResult]:
        """Decide all or none. Raises `ConflictError` with the change that came first."""
        try:
            return await approvals.decide(self._db, votes)
        except ConflictError as error:
            ids = [vote.approval_id for vote in votes]
            raise in_brief(error, await approvals.show_all(self._db, ids)) from error


def in_brief(error: ConflictError, requests: Sequence[Approval]) -> ConflictError:
    """Return why votes on these do not count, in the few words for which there is room."""
    brief = over_briefly(requests)
    return error if brief is None else type(error)(brief, hint=error.hint)
