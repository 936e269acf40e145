"""Chooses and changes jobs and dead letters for jobs of type `bulk`, in transactions that fit.

A slice that takes too long, waits in vain for a lock, or is refused by the database is halved. One
that is refused alone is recorded as a failure; for one that is locked alone, the job waits outside
the pod while other bulk operations proceed.

On failure: an outage is waited out; what an unknown outcome left is found at the repeat.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import attrs
import structlog

from cortex.actors.backoff import retry_while_unavailable
from cortex.domain.bulk import BulkChoice, BulkOrder, BulkRequest, BulkSlice
from cortex.domain.control_flow import Suspended
from cortex.domain.phrases import short_id
from cortex.domain.waiting import SLEEP
from cortex.postgres.bridge import Port
from cortex.store import bulk
from cortex.store.bulk import Resisted

HELD_S: Final = 5.0
"""How long a job waits for a locked one."""

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class StoreBulkOperations:
    """The bulk operations of all job contexts of a pod."""

    port: Port
    rng: random.Random

    async def choose(self, job_id: UUID, request: BulkRequest) -> BulkChoice:
        choose = partial(self.port, bulk.choose, job_id, request)
        return await self._retrying(choose, event="bulk operation not begun")

    async def settle(self, order: BulkOrder, job_ids: Sequence[UUID]) -> BulkSlice:
        done: BulkSlice | Resisted = Resisted(None)
        count = len(job_ids)
        while count and isinstance(done, Resisted):
            done = await self._retrying(partial(self.port, bulk.settle, order, job_ids[:count]))
            count //= 2
        if isinstance(done, BulkSlice):
            return done
        (job_id, *_), error = job_ids, done.error
        if error is None:
            held = f"{short_id(job_id)} is locked by another session"
            raise Suspended(SLEEP, held, delay_s=HELD_S)
        return await self._retrying(partial(self.port, bulk.give_up, job_id, error))

    async def _retrying(
        self, call: Callable[[], Awaitable[T]], *, event: str = "bulk operation not continued"
    ) -> T:
        return await retry_while_unavailable(call, log=_log, event=event, rng=self.rng)
