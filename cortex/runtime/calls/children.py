"""The children of a pod's jobs, kept in the database.

Invariants: children are submitted under the attempt of their parent, which the database checks.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.crash_points import crash_point
from cortex.domain.child import AdoptVerdict, ChildOutcome, ChildTerms, SpawnReply
from cortex.domain.clock import Chance
from cortex.domain.job import Claim
from cortex.domain.limits import CHECKPOINT
from cortex.postgres.bridge import Port
from cortex.store import children

BYTES_MAX: Final = CHECKPOINT.bytes_max // 2
"""Of results that one step records: their text in the record is a little longer."""

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreChildren:
    """Implements `cortex.durable.attempt.Children` on the port."""

    port: Port
    pod_id: UUID
    chance: Chance
    rng: random.Random

    async def spawn(
        self,
        claim: Claim,
        *,
        step: str,
        first: int,
        payloads: Sequence[str],
        terms: ChildTerms,
        let_go: int | None,
    ) -> SpawnReply:
        crash_point("before_spawn")
        write = partial(
            self.port,
            children.spawn,
            lease=claim.lease,
            pod_id=self.pod_id,
            step=step,
            first=first,
            ids=[self.chance.new_id() for _ in payloads],
            payloads=payloads,
            terms=terms,
            let_go=let_go,
        )
        reply: SpawnReply = await retry_while_unavailable(
            write, log=_log, event="children not submitted", rng=self.rng
        )
        crash_point("after_spawn")
        return reply

    async def outcomes(
        self, claim: Claim, *, step: str, first: int, limit: int
    ) -> list[ChildOutcome]:
        read = partial(
            self.port,
            children.outcomes,
            job_id=claim.lease.job_id,
            lineage_id=claim.lineage_id or claim.lease.job_id,
            step=step,
            first=first,
            limit=limit,
            bytes_max=BYTES_MAX,
        )
        return await retry_while_unavailable(
            read, log=_log, event="children not read", rng=self.rng
        )

    async def adopt(self, claim: Claim, *, step: str, first: int, let_go: int) -> AdoptVerdict:
        crash_point("before_adopt")
        write = partial(
            self.port,
            children.adopt,
            lease=claim.lease,
            pod_id=self.pod_id,
            step=step,
            first=first,
            new_ids=[self.chance.new_id() for _ in range(children.ADOPT_MAX)],
            let_go=let_go,
        )
        verdict: AdoptVerdict = await retry_while_unavailable(
            write, log=_log, event="children not adopted", rng=self.rng
        )
        crash_point("after_adopt")
        return verdict

    async def ids(self, claim: Claim, *, step: str, first: int, limit: int) -> list[UUID]:
        read = partial(
            self.port,
            children.ids,
            lineage_id=claim.lineage_id or claim.lease.job_id,
            step=step,
            first=first,
            limit=limit,
        )
        places = await retry_while_unavailable(
            read, log=_log, event="children not read", rng=self.rng
        )
        return [each.job_id for each in places]
