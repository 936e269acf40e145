"""Subscriptions as jobs notify people by them, without a database."""

from typing import Any
from uuid import UUID

from attrs import define, field

from cortex.domain.failure import Failure
from cortex.domain.job import Claim
from cortex.domain.messages.message import Message
from cortex.durable.attempt import ApprovalReminder


@define
class ChannelList:
    """Subscriptions that all messages match; `failures` are what each answers in turn."""

    failures: dict[str, list[Failure | None]] = field(factory=dict)
    sent: list[tuple[str, Message]] = field(factory=list)
    reminded: list[tuple[str, UUID]] = field(factory=list)
    notified: dict[UUID, str] = field(factory=dict)
    by_job: str | None = None
    """The job that submits notifications."""

    async def routes(self, topic: str, *, tenant: str, payload: dict[str, Any]) -> list[str]:  # noqa: ARG002
        return list(self.failures)

    async def send(self, name: str, message: Message, *, limit_s: float) -> Failure | None:  # noqa: ARG002
        self.sent.append((name, message))
        return self.failures[name].pop(0) if self.failures[name] else None

    async def origin(self, job_id: UUID) -> str | None:  # noqa: ARG002
        return self.by_job

    async def remind(self, approval: str, *, message_id: UUID) -> ApprovalReminder:
        self.reminded.append((approval, message_id))
        return ApprovalReminder(approval=approval, status="PENDING", notified=list(self.failures))

    async def notify(
        self,
        claim: Claim,  # noqa: ARG002
        payload: str,
        *,
        job_id: UUID,
        traceparent: str | None,  # noqa: ARG002
    ) -> None:
        self.notified[job_id] = payload
