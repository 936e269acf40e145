"""Messages of the outbox as the terminal UI sees them, in memory, changed as Postgres would."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.errors import ConflictError
from cortex.domain.messages.message import MessageStatus
from cortex.store.background.outbox import MessageHead, MessageRow
from cortex_tui.backend.messages import StoreMessages
from tests.support.terminal.tui_pods import _Fake


@attrs.define(kw_only=True)
class FakeMessages(_Fake[MessageRow], StoreMessages):
    """The outbox of a fake cluster; `rows` by their `seq`."""

    def add(self, seq: int, status: str = "FAILED", **fields: Any) -> None:
        is_failed = status == "FAILED"
        healthy: dict[str, Any] = {
            "seq": seq,
            "id": UUID(int=seq),
            "topic": "order.paid",
            "key": "o-1",
            "payload": {"order": "o-1", "amount": 12.5},
            "headers": {},
            "tenant": "default",
            "trace": None,
            "subscription": "billing",
            "channel": "webhook",
            "escalated_from": None,
            "status": status,
            "attempts": 3 if is_failed else 0,
            "lost_count": 0,
            "available_at": self.ago(9),
            "is_parked": False,
            "locked_until": self.ago(-60) if status == "PROCESSING" else None,
            "pod": "eu-1" if status == "PROCESSING" else None,
            "last_error": "billing.example answered with status 410"
            if status == "FAILED"
            else None,
            "created_at": self.ago(125),
            "finished_at": self.ago(9) if is_failed else None,
            "now": self.now,
        }
        self.rows[seq] = MessageRow(**healthy | fields)

    async def page(self) -> Sequence[MessageRow]:
        rows = [row for row in await super().page() if row.status is not MessageStatus.SENT]
        failed = [row for row in rows if row.status is MessageStatus.FAILED]
        return [*failed[::-1], *(row for row in rows if row not in failed)]

    async def show(self, row: MessageHead) -> Sequence[MessageRow]:
        self.asked.append("show")
        self.check()
        return [each for each in self.rows.values() if each.id == row.id]

    async def retry(self, row: MessageHead, *, by: str, reason: str) -> str:
        self._change("retry", row, by, reason)
        self.change(row.seq, status=MessageStatus.PENDING, attempts=0)
        return "is sent again"

    async def discard(self, row: MessageHead, *, by: str, reason: str) -> str:
        self._change("discard", row, by, reason)
        del self.rows[row.seq]
        return "discarded"

    def _change(self, verb: str, row: MessageHead, by: str, reason: str) -> None:
        self.check()
        if self.rows[row.seq].status is not MessageStatus.FAILED:
            raise ConflictError("message is SENT, not FAILED")
        self._act(verb, row.seq, by, reason)
