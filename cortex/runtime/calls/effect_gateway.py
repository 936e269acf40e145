"""Where jobs enter what they intend and find what people decided: committer and database in one.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from collections.abc import Callable
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.domain.approval import Decided
from cortex.domain.job import EffectIntent, EffectReport, IntentReply
from cortex.postgres.bridge import Port
from cortex.runtime.commit.committer import Committer
from cortex.runtime.self_fence import SelfFence
from cortex.store import approvals

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreEffectGateway:
    """What the contexts of a pod's jobs do outside their record goes through it."""

    port: Port
    committer: Committer
    standing: SelfFence
    new_id: Callable[[], UUID]
    rng: random.Random

    async def until_it_may_begin(self, call_s: float) -> None:
        """Wait until the job is this pod's for as long as a call of so many seconds may take.

        Ends with the job if that is not so any more.
        """
        await self.standing.until_it_may_begin(call_s)

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for leave to call. Raises `LeaseLost`."""
        return await self.committer.intend(intent)

    async def record(self, operation: EffectReport) -> None:
        """Commit an outcome. Raises `LeaseLost`."""
        await self.committer.record(operation)

    async def decision(self, lineage_id: UUID, key: str) -> Decided | None:
        """Return the newest request of a line of jobs for a step, decided or not."""
        return await retry_while_unavailable(
            lambda: self.port(approvals.of_line, lineage_id, key),
            log=_log,
            event="decision not read",
            rng=self.rng,
        )
