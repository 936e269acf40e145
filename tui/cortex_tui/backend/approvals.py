"""Approvals, read from and decided in Postgres."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.approval import Approval, ApprovalHead, ApprovalStatus
from cortex.domain.errors import ConflictError, ExpiredError
from cortex.domain.phrases import day_time
from cortex.postgres.database import Database
from cortex.store import approvals
from cortex.store.approvals import InboxRow, Vote, VoteResult

CHANNEL: Final = "tui"


class StoreApprovals:
    """The inbox, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def waiting(
        self, *, by: str, credential: str, also: Sequence[UUID], limit: int
    ) -> Sequence[InboxRow]:
        return await approvals.waiting(
            self._db, by=by, credential=credential, also=also, limit=limit
        )

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        return await approvals.decided(self._db, limit=limit)

    async def arguments(
        self, ids: Sequence[UUID], *, chars: int
    ) -> Sequence[tuple[UUID, bytes, str]]:
        return await approvals.arguments(self._db, ids, chars=chars)

    async def show(self, ids: Sequence[UUID]) -> Sequence[Approval]:
        return await approvals.show_all(self._db, ids)

    async def decide(self, verdicts: Sequence[Vote]) -> Sequence[VoteResult]:
        if len(verdicts) > 1:
            return await approvals.decide_all(self._db, verdicts)
        (verdict,) = verdicts
        ruling = await approvals.decide(self._db, verdict)
        if not ruling.is_taken:
            raise lost(await approvals.show(self._db, verdict.approval_id), ruling)
        return [ruling]


def lost(approval: Approval, ruling: VoteResult) -> ConflictError:
    """Return why a decision came too late, in a few words."""
    if ruling.outcome not in ("already", "expired"):
        return approvals.refusal(approval, ruling)
    if approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.DENIED):
        return ConflictError(f"already {ended_briefly(approval)}")
    if approval.status == ApprovalStatus.CANCELLED:
        return ConflictError(f"void: {approval.reason}")
    return ExpiredError(f"expired {day_time(approval.expires_at)}: nothing was executed")


def ended_briefly(row: ApprovalHead) -> str:
    """Return how, by whom, when and where it was decided: `denied by li, 12:29:51Z, page`."""
    parts = [
        f"{row.status.lower()} by {row.decided_by}",
        "" if row.decided_at is None else day_time(row.decided_at),
        row.channel or "",
    ]
    return ", ".join(filter(None, parts))
