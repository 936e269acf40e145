"""The channels of subscriptions, for jobs that notify people.

The senders, their limits and their breakers are those of the outbox; a job has its own retries.
"""

from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.classification import failure_of
from cortex.domain.clock import Chance
from cortex.domain.errors import CortexError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import SEND_NOTIFICATION, Claim, Submission
from cortex.domain.messages.message import Message
from cortex.durable.attempt import ApprovalReminder
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.http_client.proxies import Proxies
from cortex.postgres.bridge import Port
from cortex.runtime.outbox.senders import SenderParts, send_within
from cortex.store import approvals, jobs, specs
from cortex.store.background import subscriptions
from cortex.store.specs import SpecKind

BY_JOB: Final = "job:"
"""How the submitter of a job is recorded that another job submits."""


@attrs.frozen(kw_only=True)
class StoreChannels:
    """Finds subscriptions in the database, and sends by them."""

    port: Port
    chance: Chance

    async def routes(self, topic: str, *, tenant: str, payload: dict[str, Any]) -> list[str]:
        return await self.port(subscriptions.routes, topic, tenant=tenant, payload=payload)

    async def send(self, name: str, message: Message, *, limit_s: float) -> Failure | None:
        subscription = await self.port(subscriptions.one, name)
        if subscription is None:
            return _gone(name)
        allowed = AllowedAddresses.of_environment()
        poster = Poster(allowed, proxies=Proxies.of_environment())
        parts = SenderParts(
            poster=poster, allowed=allowed, unix_ms=self.chance.unix_ms, send_s=limit_s
        )
        try:
            # The time of one attempt is that of the job's step.
            sender = parts.sender(attrs.evolve(subscription, timeout_s=None))
            return _gone(name) if sender is None else await send_within(sender, message)
        except CortexError as error:  # settings that are not usable here, such as a secret
            return failure_of(error)
        finally:
            await poster.aclose()

    async def origin(self, job_id: UUID) -> str | None:
        submitted_by = (await self.port(jobs.show, job_id)).submitted_by or ""
        return submitted_by.removeprefix(BY_JOB) if submitted_by.startswith(BY_JOB) else None

    async def remind(self, approval: str, *, message_id: UUID) -> ApprovalReminder:
        approval_id = await self.port(approvals.find, approval)
        done = await self.port(approvals.remind_one, approval_id, message_id=message_id)
        return ApprovalReminder(
            approval=str(approval_id), status=done.status.value, notified=list(done.receivers)
        )

    async def notify(
        self, claim: Claim, payload: str, *, job_id: UUID, traceparent: str | None
    ) -> None:
        agent = None
        if claim.agent_id is not None and claim.agent_version is not None:
            spec = await self.port(specs.spec, SpecKind.AGENT, claim.agent_id, claim.agent_version)
            agent = spec["name"]
        submission = Submission(
            id=job_id,
            type=SEND_NOTIFICATION,
            payload=payload,
            agent=agent,
            tenant=claim.tenant,
            traceparent=traceparent,
        )
        await self.port(jobs.submit_once, submission, by=f"{BY_JOB}{claim.lease.job_id}")


def _gone(name: str) -> Failure:
    return Failure(
        cls=FailureClass.PERMANENT,
        code="not_found",
        message=f"subscription {name!r} does not exist any more",
    )
