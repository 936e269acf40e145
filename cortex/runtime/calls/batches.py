"""The calls of jobs that wait for batches, kept in the database.

Invariants: a call and the room that was reserved for it belong together from one transaction on:
both outlive the attempt.

On failure: an outage is waited out; the limits of the job around it decide how long.
"""

import random
from functools import partial
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.agent.models.batch_api import BatchModels
from cortex.agent.models.batched import BatchedCall
from cortex.crash_points import crash_point
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation
from cortex.postgres.bridge import Port
from cortex.store import model_batches
from cortex.store.model_batches import KnownCall, NewCall

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class StoreBatches:
    """Implements `cortex.agent.models.batched.Batches` on the port."""

    port: Port
    pod_id: UUID
    models: BatchModels
    rng: random.Random

    async def find(self, caller: Caller, digest: bytes) -> BatchedCall | None:
        """Return the call that the caller's step has added with this request."""
        find = partial(
            self.port,
            model_batches.find,
            lineage_id=caller.lineage_id,
            job_id=caller.lease.job_id,
            step=caller.key,
            digest=digest,
        )
        known: KnownCall | None = await retry_while_unavailable(
            find, log=_log, event="batch not read", rng=self.rng
        )
        if known is None:
            return None
        done_at = known.done_at
        return BatchedCall(
            answer=known.answer,
            usage=None if known.usage is None else Usage.known_part(known.usage),
            cost_usd=known.cost_usd,
            failure=known.failure,
            took_s=None if done_at is None else (done_at - known.added_at).total_seconds(),
        )

    async def add(
        self, reservation: Reservation, *, digest: bytes, request: str, size: int
    ) -> bool:
        """Have a call wait for a batch, with its room; False: the attempt is over."""
        caller = reservation.caller
        call = NewCall(
            id=reservation.id,
            lease=caller.lease,
            pod_id=self.pod_id,
            lineage_id=caller.lineage_id,
            step=caller.key,
            digest=digest,
            endpoint=self.models.endpoint_of(reservation.model),
            model=reservation.model,
            config_id=caller.config_id,
            request=request,
            size=size,
        )
        crash_point("before_batch_add")
        is_added: bool = await retry_while_unavailable(
            partial(self.port, model_batches.add, call),
            log=_log,
            event="batch not joined",
            rng=self.rng,
        )
        crash_point("after_batch_add")
        return is_added
