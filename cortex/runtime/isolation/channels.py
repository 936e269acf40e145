"""The channels of subscriptions for jobs in processes of their own: both sides of the wire."""

from typing import Any, Final
from uuid import UUID

import attrs

from cortex.domain.errors import ForbiddenError, RejectedError
from cortex.domain.failure import Failure
from cortex.domain.job import APPROVAL_NOTIFY, SEND_NOTIFICATION, Claim
from cortex.domain.messages.message import Message
from cortex.durable.attempt import ApprovalReminder, Channels
from cortex.runtime.isolation.wire import Channel, plain, shaped

ONLY_BY: Final = {
    "routes": SEND_NOTIFICATION,
    "send": SEND_NOTIFICATION,
    "remind": APPROVAL_NOTIFY,
}
"""The one job type that calls a method; `notify` submits a job, as any job may."""


@attrs.frozen
class RemoteChannels:
    """The side of the job: asks its pod."""

    line: Channel

    async def routes(self, topic: str, *, tenant: str, payload: dict[str, Any]) -> list[str]:
        given = {"topic": topic, "tenant": tenant, "payload": payload}
        names: list[str] = await self._call("routes", given)
        return names

    async def send(self, name: str, message: Message, *, limit_s: float) -> Failure | None:
        given = {"name": name, "message": plain(message), "limit_s": limit_s}
        failure = await self._call("send", given)
        return None if failure is None else shaped(failure, Failure)

    async def remind(self, approval: str, *, message_id: UUID) -> ApprovalReminder:
        given = {"approval": approval, "message_id": str(message_id)}
        return shaped(await self._call("remind", given), ApprovalReminder)

    async def notify(
        self,
        claim: Claim,  # noqa: ARG002 -- the pod knows the job
        payload: str,
        *,
        job_id: UUID,
        traceparent: str | None,
    ) -> None:
        given = {"payload": payload, "job_id": str(job_id), "traceparent": traceparent}
        await self._call("notify", given)

    async def _call(self, method: str, given: dict[str, Any]) -> Any:
        return await self.line.call("channels", method=method, given=given)


async def answer(channels: Channels, claim: Claim, method: str, given: dict[str, Any]) -> Any:
    """Answer a call of a job, on the side of its pod.

    Raises `ForbiddenError` for a method that the job's type has no use for: otherwise a job that
    has taken its process over could send any text by any channel.
    """
    if claim.type != ONLY_BY.get(method, claim.type):
        raise ForbiddenError(f"a job of type {claim.type!r} may not call {method} of channels")
    match method:
        case "routes":
            return await channels.routes(**given)
        case "send":
            message = shaped(given.pop("message"), Message)
            return plain(await channels.send(message=message, **given))
        case "remind":
            message_id = UUID(given["message_id"])
            return plain(await channels.remind(given["approval"], message_id=message_id))
        case "notify":
            await channels.notify(claim, job_id=UUID(given.pop("job_id")), **given)
            return None
        case _:
            raise RejectedError(f"channels have no {method!r}")
