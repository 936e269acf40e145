"""The leases of messages that a pod holds."""

from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import attrs

from cortex.domain.messages.message import Message
from cortex.postgres.bridge import Port
from cortex.runtime.outbox.leases import Leases

MESSAGE = Message(
    id=UUID(int=1),
    attempt=1,
    topic="a.b",
    payload={},
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    seq=1,
    claim=1,
)


async def test_an_ended_delivery_does_not_drop_the_message_claimed_again() -> None:
    leases = Leases(cast("Port", None), pod_id=UUID(int=2))
    older = leases.take(MESSAGE, 0.0)
    older.lose()
    leases.drop(older)
    again = leases.take(attrs.evolve(MESSAGE, claim=2), 40.0)
    leases.drop(older)
    assert leases.undecided == [again]
    leases.drop(again)
    assert not leases
