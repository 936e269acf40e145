"""Records what became of messages, in batches.

Owns: the outcomes that are not yet in the database. Writes: the outbox. Invariants: an outcome is
recorded only under the lease it came of; one that is not recorded is kept.

On failure: while the database is unavailable, outcomes wait; leases that ended meanwhile are lost.
On stop: the outbox calls `write` once more.
"""

import random
from collections.abc import Callable
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.crash_points import crash_point
from cortex.domain.messages.message import Outcome
from cortex.postgres.bridge import Port
from cortex.runtime.outbox.leases import Held, Leases
from cortex.store.background import outbox as store

_log = structlog.get_logger(__name__)


class Outcomes:
    """The outcomes of messages on their way to the database."""

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        leases: Leases,
        rng: random.Random,
        on_unparked: Callable[[], None],
    ) -> None:
        """`on_unparked`: called when an outcome has made further messages due."""
        self._port = port
        self._pod_id = pod_id
        self._leases = leases
        self._rng = rng
        self._on_unparked = on_unparked
        self._ended: list[tuple[Held, Outcome]] = []
        self._has_ended = trio.Event()
        self._is_written = trio.Event()

    def end(self, held: Held, outcome: Outcome) -> None:
        """Keep an outcome until it is recorded; the lease ends with that."""
        held.has_outcome = True
        self._ended.append((held, outcome))
        self._has_ended.set()

    async def record(self) -> None:
        """Record outcomes in batches as they come, until cancelled."""
        backoff = LoopBackoff(rng=self._rng)
        while True:
            await self._has_ended.wait()
            async with backoff.pause_if_unavailable(_log, "outcomes of messages not recorded"):
                await self.write()

    async def write(self) -> None:
        """Record what has ended so far."""
        batch = list(self._ended)
        if batch:
            crash_point("before_outbox_record")
            recorded = await self._port(
                store.record,
                pod_id=self._pod_id,
                outcomes=[(held.message, outcome) for held, outcome in batch],
            )
            crash_point("after_outbox_record")
            for held, _ in batch:
                self._leases.drop(held)
            del self._ended[: len(batch)]
            if recorded.unparked_count:
                self._on_unparked()
        if not self._ended:
            self._has_ended = trio.Event()
        self._is_written.set()
        self._is_written = trio.Event()

    async def wait_until_written(self) -> None:
        """Return when outcomes have been recorded once more."""
        await self._is_written.wait()

    def clear(self) -> None:
        """Forget what could not be recorded: the leases end by themselves."""
        self._ended.clear()
