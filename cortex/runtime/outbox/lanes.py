"""A lane for each subscription: the messages that wait in this pod, and how many more it may take.

A lane has handlers of its own, so that one whose receiver hangs delays no other; heavy ones share
two, since they cost the pod memory or CPU.

Owns: the lanes. Reads: the subscriptions, at most once a second. Writes: the subscriptions of
handlers that are declared in code. Invariants: a subscription that has changed gets a new lane;
what waits in the old one is handed back.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import attrs
import structlog
import trio

from cortex.domain.breaker import BreakerState
from cortex.domain.errors import CortexError, UsageError
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.durable.message_handlers import MessageHandler
from cortex.postgres.bridge import Port
from cortex.runtime.outbox.leases import Held
from cortex.runtime.outbox.senders import Sender, SenderParts
from cortex.store.background import subscriptions

BATCH: Final = 50
"""Messages that one claim takes."""
HANDLERS: Final = 10
HEAVY_HANDLERS: Final = 2
QUICK_S: Final = 0.1
"""A quicker subscription is given a batch ahead of its handlers; of a slower one the rest is left
to other pods."""
FEW: Final = 2
"""Taken of a subscription that had nothing more lately."""
READ_SUBSCRIPTIONS_S: Final = 1.0

_log = structlog.get_logger(__name__)


@attrs.define(eq=False, kw_only=True)
class Lane:
    """One subscription in this pod."""

    subscription: Subscription
    sender: Sender
    queue: deque[Held] = attrs.field(factory=deque)
    running: int = 0
    mean_s: float = 0.0
    """Of its latest calls."""
    has_more: bool = False
    """Its last claim may have left due messages behind."""

    @property
    def limit(self) -> int:
        return HEAVY_HANDLERS if self.subscription.is_heavy else HANDLERS

    def room(self, state: BreakerState) -> int:
        """Return how many messages it may take now."""
        held = len(self.queue) + self.running
        if self.subscription.has_breaker and state is not BreakerState.CLOSED:
            # Half-open: one to try it. Open: its messages wait in the database.
            return 1 if state is BreakerState.HALF_OPEN and not held else 0
        if self.subscription.is_heavy:
            return max(0, HEAVY_HANDLERS - held)
        if self.mean_s > QUICK_S:
            return max(0, HANDLERS - held)
        return BATCH - held if len(self.queue) <= HANDLERS else 0

    def took(self, seconds: float) -> None:
        self.mean_s += 0.1 * (seconds - self.mean_s)


def shares(rooms: dict[str, int], lanes: Iterable[Lane]) -> dict[str, int]:
    """Return how many messages a claim takes of each subscription, about a batch in all.

    Those that had more last time share it; the others are only looked at.
    """
    names = [each.subscription.name for each in lanes if rooms.get(each.subscription.name)]
    busy = {each.subscription.name for each in lanes if each.has_more} & set(names) or set(names)
    share = max(FEW, BATCH // max(1, len(busy)))
    return {name: min(rooms[name], share if name in busy else FEW) for name in names}


class Lanes:
    """The lanes of all subscriptions that this pod can serve."""

    def __init__(
        self,
        port: Port,
        *,
        parts: SenderParts,
        handlers: Mapping[str, MessageHandler],
        hand_back: Callable[[Held], None],
    ) -> None:
        """`hand_back`: called with each message that waits in a lane that goes away."""
        self._port = port
        self._parts = parts
        self._handlers = handlers
        self._hand_back = hand_back
        self._by_name: dict[str, Lane] = {}
        self._read_at = float("-inf")
        self._are_handlers_known = not handlers

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Lane:
        return self._by_name[name]

    def rooms(self, states: Mapping[str, BreakerState]) -> dict[str, int]:
        """Return how many messages each lane that has room may take; `states`: of breakers."""
        rooms = {}
        for name, lane in self._by_name.items():
            room = lane.room(states.get(lane.subscription.breaker, BreakerState.CLOSED))
            if room > 0:
                rooms[name] = room
        return rooms

    def empty(self) -> None:
        """Drop what waits."""
        for lane in self:
            lane.queue.clear()

    async def read(self) -> None:
        """Read the subscriptions, unless that was just done."""
        now = trio.current_time()
        if not self._are_handlers_known:
            await self._subscribe_handlers()
            self._are_handlers_known = True
        if now >= self._read_at + READ_SUBSCRIPTIONS_S:
            self._read_at = now
            self._refresh(await self._port(subscriptions.every))

    async def _subscribe_handlers(self) -> None:
        existing = {each.name: each for each in await self._port(subscriptions.every)}
        for name, each in self._handlers.items():
            taken = existing.get(name)
            if taken is not None and taken.channel is not Channel.HANDLER:
                raise UsageError(
                    f"handler {name!r} has the name of a subscription by {taken.channel}",
                    hint="give the handler another name=, or remove the subscription",
                )
            await self._port(
                subscriptions.put, each.subscription, by="app", reason="declared in code"
            )

    def _refresh(self, rows: Collection[Subscription]) -> None:
        kept = {}
        for row in rows:
            lane = self._by_name.get(row.name)
            if lane is not None and lane.subscription == row:
                kept[row.name] = lane
                continue
            try:
                sender = self._parts.sender(row)
            except CortexError as error:
                _log.warning("subscription not usable", name=row.name, error=error.message)
                continue
            if sender is not None:
                kept[row.name] = Lane(subscription=row, sender=sender)
        for name, lane in self._by_name.items():
            if kept.get(name) is not lane:
                for held in lane.queue:
                    self._hand_back(held)
                lane.queue.clear()
        self._by_name = kept
