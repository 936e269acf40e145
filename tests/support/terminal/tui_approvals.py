"""Requests for approval as the terminal UI sees them, in memory, decided as Postgres would."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalHead
from cortex.domain.approvals.vote import Vote, checked, refusal
from cortex.domain.canonical import parse
from cortex.domain.errors import ConflictError, CortexError
from cortex.domain.people import Identity
from cortex.store.approvals import InboxRow, VoteResult
from cortex_tui.backend.approvals import StoreApprovals, in_brief
from cortex_tui.clock import Clock
from tests.support.records.approvals import SCHEMA
from tests.support.records.store_rows import an_approval, arguments_of


@attrs.define(kw_only=True)
class FakeApprovals(StoreApprovals):
    """The inbox of a fake cluster."""

    clock: Clock
    check: Callable[[], None]
    """Raises while the cluster does not answer."""
    rows: dict[UUID, Approval] = attrs.field(factory=dict)
    own: set[UUID] = attrs.field(factory=set)
    """Critical ones that the one who looks asked for."""
    agreed: set[UUID] = attrs.field(factory=set)
    """Those that the one who looks agreed to."""
    asked: list[str] = attrs.field(factory=list)
    decisions: list[Vote] = attrs.field(factory=list)
    """Those that counted."""
    refused: list[Vote] = attrs.field(factory=list)
    error: CortexError | None = None
    """What deciding fails with."""
    look: asyncio.Event | None = None
    """While it is not set, lists of those that wait are under way."""
    reply: asyncio.Event | None = None
    """While it is not set, the result of `decide` is visible but its caller waits."""

    # --- the test's side

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def add(self, number: int, **fields: Any) -> UUID:
        """Add a request whose id ends in this number."""
        approval_id = UUID(int=number)
        expires_s = fields.pop("expires_s", 3600.0)
        self._mark(approval_id, fields)
        waiting: dict[str, Any] = {
            "id": approval_id,
            "job_id": UUID(int=1000 + number),
            "created_at": self.now,
            "expires_at": self.now + timedelta(seconds=expires_s),
            "schema": SCHEMA,
            "asked": fields.pop("arguments", {"customer": "cus_88", "amount": 12.4}),
        }
        self.rows[approval_id] = an_approval(**waiting | fields)
        return approval_id

    def change(self, approval_id: UUID, **fields: Any) -> None:
        self._mark(approval_id, fields)
        if "arguments" in fields:
            fields |= arguments_of(fields["arguments"])
        self.rows[approval_id] = attrs.evolve(self.rows[approval_id], **fields)

    def _mark(self, approval_id: UUID, fields: dict[str, Any]) -> None:
        """Take the fields that depend on the viewer out of those of the request."""
        for name, ids in (("is_own", self.own), ("has_agreed", self.agreed)):
            if fields.pop(name, False):
                ids.add(approval_id)

    def _listed(self, row: Approval) -> InboxRow:
        head = {each.name: getattr(row, each.name) for each in attrs.fields(ApprovalHead)}
        is_own, has_agreed = row.id in self.own, row.id in self.agreed
        return InboxRow(**head, is_own=is_own, has_agreed=has_agreed)

    def end(self, approval_id: UUID, status: str, by: str | None = "li") -> None:
        """Let it be decided elsewhere."""
        self.change(approval_id, status=status, decided_by=by, decided_at=self.now, channel="page")

    @property
    def approved(self) -> list[UUID]:
        return [each.approval_id for each in self.decisions if each.is_approved]

    # --- the screen's side

    async def waiting(
        self,
        *,
        by: Identity,  # noqa: ARG002 -- the protocol's
        also: Sequence[UUID],
        limit: int,  # noqa: ARG002 -- the protocol's
    ) -> Sequence[InboxRow]:
        self._ask("waiting")
        if self.look is not None:
            await self.look.wait()
        rows = [r for r in self.rows.values() if r.status == "PENDING" or r.id in also]
        return [self._listed(row) for row in rows]

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        self._ask("decided")
        rows = [row for row in self.rows.values() if row.status != "PENDING"]
        return [self._listed(row) for row in rows[:limit]]

    async def arguments(
        self,
        ids: Sequence[UUID],
        *,
        chars: int,  # noqa: ARG002 -- the protocol's
    ) -> Sequence[tuple[UUID, bytes, str]]:
        self._ask("arguments")
        rows = [self.rows[each] for each in ids]
        return [(row.id, row.digest, row.arguments_text) for row in rows]

    async def show(self, ids: Sequence[UUID]) -> Sequence[Approval]:
        self._ask("show")
        return [attrs.evolve(self.rows[each], now=self.now) for each in ids if each in self.rows]

    async def decide(self, votes: Sequence[Vote]) -> Sequence[VoteResult]:
        self._ask("decide")
        if self.error is not None:
            raise self.error
        try:
            return self._decide(votes)
        finally:
            if self.reply is not None:
                await self.reply.wait()

    def _decide(self, votes: Sequence[Vote]) -> Sequence[VoteResult]:
        rows = [attrs.evolve(self.rows[vote.approval_id], now=self.now) for vote in votes]
        try:
            counted = checked(rows, votes)
            for row in rows:
                if not row.is_open:
                    raise refusal(row, "already")
        except CortexError as error:
            self.refused += votes
            if isinstance(error, ConflictError):
                raise in_brief(error, rows) from error
            raise
        self.decisions += counted
        return [self._counted(vote) for vote in counted]

    def _counted(self, vote: Vote) -> VoteResult:
        row = self.rows[vote.approval_id]
        if vote.edited is not None:
            self.change(vote.approval_id, arguments=parse(vote.edited))
        if vote.is_approved and row.agreed + 1 < row.people:
            self.change(vote.approval_id, agreed=row.agreed + 1, has_agreed=True)
            return VoteResult(outcome="agreed", agreed_count=row.agreed + 1)
        self.end(vote.approval_id, "APPROVED" if vote.is_approved else "DENIED", vote.by.name)
        return VoteResult(outcome="approved" if vote.is_approved else "denied", agreed_count=1)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.check()
