"""Claims due messages for the lanes that have room, and says when to claim again.

Owns: when this pod claims, and when it takes back the messages of lost leases. Reads and writes:
the outbox. Invariants: no more is claimed than the lanes have room for; nothing while it is closed.

On failure: the runner of the outbox waits and claims again.
On stop: the outbox clears `is_open`; nothing more is claimed.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol
from uuid import UUID

import structlog
import trio

from cortex.actors.runner import AT_ONCE, TickResult
from cortex.crash_points import crash_point
from cortex.domain.breaker import BreakerState
from cortex.durable.calls import CircuitBreakers
from cortex.postgres.bridge import Port
from cortex.runtime.outbox.delivery import Delivery
from cortex.runtime.outbox.lanes import Lanes, shares
from cortex.runtime.outbox.leases import Leases
from cortex.store.background import outbox as store

RECLAIM_S: Final = 2.0
"""How soon after the death of a pod its messages are free, at most this much later."""
RECLAIM_MAX: Final = 500
IDLE_S: Final = 30.0

_log = structlog.get_logger(__name__)


class Breakers(CircuitBreakers, Protocol):
    """Circuit breakers, and what is known of them."""

    def states(self) -> Mapping[str, BreakerState]:
        """Return the known states; those that are missing are closed."""

    def next_probe_s(self, names: Collection[str]) -> float | None:
        """Return in how many seconds the first open one of these may be probed; None: none is."""


class Claims:
    """Takes messages from the database, and gives them to the delivery of this pod."""

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        lanes: Lanes,
        leases: Leases,
        breakers: Breakers,
        delivery: Delivery,
    ) -> None:
        self._port = port
        self._pod_id = pod_id
        self._lanes = lanes
        self._leases = leases
        self._breakers = breakers
        self._delivery = delivery
        self._reclaim_at = float("-inf")
        self.is_open = True
        """Otherwise nothing more is claimed."""

    async def claim(self) -> TickResult:
        """Take due messages for all lanes that have room."""
        await self._lanes.read()
        await self._reclaim()
        rooms = self._rooms()
        most = shares(rooms, self._lanes)
        if not most:
            return TickResult(next_s=self._again_s(None))
        asked_at = trio.current_time()
        crash_point("before_outbox_claim")
        claimed = await self._port(store.claim, pod_id=self._pod_id, most=most)
        if claimed.messages:
            crash_point("after_outbox_claim")
        counts = dict.fromkeys(most, 0)
        for message in claimed.messages:
            counts[message.subscription] += 1
            held = self._leases.take(message, asked_at)
            self._delivery.add(self._lanes[message.subscription], held)
        were_parked = claimed.read_count > len(claimed.messages)
        for name, count in counts.items():
            self._lanes[name].has_more = count == most[name] or were_parked
        rooms = self._rooms()
        if any(self._lanes[name].has_more for name in most if rooms.get(name)):
            return TickResult(items=len(claimed.messages), next_s=AT_ONCE)
        due_s = await self._port(store.next_due_s, subscriptions=list(most))
        return TickResult(items=len(claimed.messages), next_s=self._again_s(due_s))

    def _again_s(self, due_s: float | None) -> float | None:
        """Return when to claim again; None: at the loop's own pace. Breakers change by time."""
        names = [each.subscription.breaker for each in self._lanes]
        probe_s = self._breakers.next_probe_s(names)
        waits = [each for each in (due_s, probe_s) if each is not None]
        return min(*waits, IDLE_S) if waits else None

    def _rooms(self) -> dict[str, int]:
        return self._lanes.rooms(self._breakers.states()) if self.is_open else {}

    async def _reclaim(self) -> None:
        """Take over lost messages, now and then."""
        now = trio.current_time()
        if now >= self._reclaim_at + RECLAIM_S:
            self._reclaim_at = now
            crash_point("before_outbox_reclaim")
            if taken := await self._port(store.reclaim, limit=RECLAIM_MAX):
                _log.warning("messages of lost leases taken back", messages=taken)
            await self._port(store.give_up, limit=RECLAIM_MAX)
            crash_point("after_outbox_reclaim")
