"""The messages that a pod holds for one subscription, and how many more it may take.

A subscription has handlers of its own, so that one whose receiver hangs delays no other; heavy
ones share two, since they cost the pod memory or CPU.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from cortex.domain.breaker import BreakerState
from cortex.domain.messages.message import LEASE_S, Message
from cortex.domain.messages.subscription import Subscription
from cortex.runtime.outbox.senders import Sender

BATCH: Final = 50
"""Messages that one claim takes."""
HANDLERS: Final = 10
HEAVY_HANDLERS: Final = 2
QUICK_S: Final = 0.1
"""A quicker subscription is given a batch ahead of its handlers; of a slower one the rest is left
to other pods."""
FEW: Final = 2
"""Taken of a subscription that had nothing more lately."""
LEASE_MARGIN_S: Final = 5.0


@attrs.define(eq=False, kw_only=True)
class Held:
    """A message whose lease this pod has."""

    message: Message
    until: float
    """When the lease ends, by this pod's clock and on the safe side."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_lost: bool = False

    @property
    def is_sure(self) -> bool:
        """No other pod can have taken it by now."""
        return not self.is_lost and trio.current_time() < self.until

    def renewed(self, asked_at: float, lease_s: float = LEASE_S) -> None:
        """The lease counts from when it was asked for."""
        self.until = asked_at + lease_s - LEASE_MARGIN_S

    def lose(self) -> None:
        """Another pod may have it."""
        self.is_lost = True
        self.scope.cancel(reason="lease lost")


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
