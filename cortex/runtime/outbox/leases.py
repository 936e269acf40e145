"""Leases of the messages that this pod has claimed: kept, renewed, given up.

Owns: every message from its claim until its outcome is recorded. Invariants: a message is sent
while its lease is held. A message that another pod may have is sent and recorded no more.

On failure: a renewal that fails is logged; the next one may still be in time.
On stop: nothing to do; the outbox records what is undecided as handed back.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.domain.errors import UnavailableError
from cortex.domain.messages.message import LEASE_S, Message
from cortex.postgres.bridge import Port
from cortex.store.background import outbox as store

RENEW_S: Final = 15.0
LEASE_MARGIN_S: Final = 5.0

_log = structlog.get_logger(__name__)


@attrs.define(eq=False, kw_only=True)
class Held:
    """A message whose lease this pod has."""

    message: Message
    until: float
    """When the lease ends, by this pod's clock and on the safe side."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Around its delivery."""
    is_lost: bool = False
    has_outcome: bool = False
    """True from a certain outcome until its record."""

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


class Leases:
    """All leases of messages that this pod has."""

    def __init__(self, port: Port, *, pod_id: UUID) -> None:
        self._port = port
        self._pod_id = pod_id
        self._held: dict[int, Held] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def undecided(self) -> list[Held]:
        """The messages without an outcome."""
        return [each for each in self._held.values() if not each.has_outcome and not each.is_lost]

    def take(self, message: Message, asked_at: float) -> Held:
        """Hold a message that was claimed; `asked_at`: when the claim was sent, by trio's clock."""
        held = self._held[message.seq] = Held(message=message, until=0.0)
        held.renewed(asked_at)
        return held

    def drop(self, held: Held) -> None:
        """Hold it no more; the same message that was claimed again meanwhile stays held."""
        if self._held.get(held.message.seq) is held:
            del self._held[held.message.seq]

    def clear(self) -> None:
        self._held.clear()

    async def renew(self) -> None:
        """Renew all leases from time to time, until cancelled."""
        while True:
            await trio.sleep(RENEW_S)
            held = [each for each in self._held.values() if not each.is_lost]
            if not held:
                continue
            asked_at = trio.current_time()
            try:
                still = await self._port(
                    store.renew, pod_id=self._pod_id, messages=[each.message for each in held]
                )
            except UnavailableError as error:
                _log.warning("leases of messages not renewed", error=error.message)
                continue
            self._renewed(held, still, asked_at)

    def _renewed(self, held: Collection[Held], still: Collection[int], asked_at: float) -> None:
        for each in held:
            seq = each.message.seq
            if seq in still:
                each.renewed(asked_at)
            elif seq in self._held and not each.has_outcome:
                _log.warning("lease lost", message=str(each.message.id))
                each.lose()
                self.drop(each)
