"""Combines committer and database: jobs announce effects and read people's decisions here.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from collections.abc import Callable
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.domain.approvals.approval import Decided
from cortex.domain.job import EffectIntent, EffectReport, IntentReply
from cortex.postgres.bridge import Port
from cortex.runtime.commit.committer import Committer
from cortex.runtime.self_fence import SelfFence
from cortex.store import approvals

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreEffectGateway:
    """The gateway of all job contexts of a pod for effects outside the record."""

    port: Port
    committer: Committer
    self_fence: SelfFence
    new_id: Callable[[], UUID]
    rng: random.Random

    async def until_it_may_begin(self, call_s: float) -> None:
        """Wait until the pod surely owns the job for a call of up to `call_s` seconds.

        Cancelled with the job if the pod loses it.
        """
        await self.self_fence.until_it_may_begin(call_s)

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for permission to call. Raises `LeaseLost`."""
        return await self.committer.intend(intent)

    async def record(self, operation: EffectReport) -> None:
        await self.committer.record(operation)

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:
        """Return the newest approval request for a step in a job's lineage, decided or not."""
        return await retry_while_unavailable(
            lambda: self.port(approvals.of_line, lineage_id, key),
            log=_log,
            event="decision not read",
            rng=self.rng,
        )
