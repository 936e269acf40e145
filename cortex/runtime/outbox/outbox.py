"""The runner of the outbox: has messages claimed, sent and recorded, one part for each.

    claims.py    when to claim, and how many messages of each lane
    lanes.py     the subscriptions, each with what waits for it in this pod
    delivery.py  the handlers that send; senders.py and email.py: one sender for each channel
    outcomes.py  what became of messages, on its way to the database
    leases.py    the messages that this pod has, from their claim to their record

Owns: when these parts begin and end. Reads: the subscriptions. Writes: the outbox.
Invariants: a message is sent while its lease is held, and recorded only by who holds it; one that
was sent and not recorded is sent again under the same id. Messages of one key are never in two
hands.

On failure: while the database is unavailable, nothing is claimed, and outcomes are kept and written
when it is back; leases that ended meanwhile are lost.
On stop: `finish` claims no more, and lets calls under way end as long as the drain lasts. Then they
get `delivery.GRACE_S`, and all leases are handed back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.domain.clock import Chance
from cortex.domain.errors import CortexError
from cortex.domain.messages.message import handed_back
from cortex.durable.message_handlers import MessageHandler
from cortex.durable.tracing import Deliveries, Untraced
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.http_client.proxies import Proxies
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST
from cortex.runtime.liveness.listener import BREAKER, OUTBOX
from cortex.runtime.outbox.claims import Breakers, Claims
from cortex.runtime.outbox.delivery import Delivery, Meter, NoMeter
from cortex.runtime.outbox.lanes import Lanes
from cortex.runtime.outbox.leases import Leases
from cortex.runtime.outbox.outcomes import Outcomes
from cortex.runtime.outbox.senders import SEND_S, SenderParts

FINISH_CLAIM_S: Final = 1.0
"""A pod that leaves does not wait for a database that is away."""
FINISH_CHECK_S: Final = 0.5
HAND_BACK_S: Final = 2.0

_log = structlog.get_logger(__name__)


class Outbox(Runner):
    """The runner; in a pod its deliveries go on between its ticks."""

    name = "outbox"
    failure = "outbox not read"
    woken_by = frozenset({OUTBOX, BREAKER, POD_LOST})
    runs_until_sign_off = True

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        chance: Chance,
        breakers: Breakers,
        handlers: Mapping[str, MessageHandler] | None = None,
        allowed: AllowedAddresses | None = None,
        meter: Meter | None = None,
        deliveries: Deliveries | None = None,
        read_breakers: Callable[[TickBudget], Awaitable[object]] | None = None,
        send_s: float = SEND_S,
        page_url: str | None = None,
    ) -> None:
        """`read_breakers`: what a tick alone does first, since nothing else reads them.

        `send_s`: for one message by any channel but a handler. `page_url`: where people reach the
        approval page.
        """
        super().__init__(rng=chance.rng)
        self._read_breakers = read_breakers
        if allowed is None:
            allowed = AllowedAddresses.of_environment()
        self._poster = Poster(allowed, proxies=Proxies.of_environment())
        self._leases = Leases(port, pod_id=pod_id)
        self._outcomes = Outcomes(
            port, pod_id=pod_id, leases=self._leases, rng=chance.rng, on_unparked=self.wake
        )
        self._lanes = Lanes(
            port,
            parts=SenderParts(
                poster=self._poster,
                allowed=allowed,
                handlers=handlers or {},
                unix_ms=chance.unix_ms,
                send_s=send_s,
            ),
            handlers=handlers or {},
            hand_back=lambda held: self._outcomes.end(held, handed_back()),
        )
        self._delivery = Delivery(
            leases=self._leases,
            outcomes=self._outcomes,
            breakers=breakers,
            deliveries=deliveries or Untraced(),
            meter=meter or NoMeter(),
            rng=chance.rng,
            page_url=page_url,
            on_more=self.wake,
        )
        self._claims = Claims(
            port,
            pod_id=pod_id,
            lanes=self._lanes,
            leases=self._leases,
            breakers=breakers,
            delivery=self._delivery,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self._open():
            await super().run(task_status=task_status)

    async def finish(self) -> None:
        """Claim what is due once more, then nothing; return when no delivery is under way.

        The caller limits the time.
        """
        if not self._delivery.is_running:
            return
        with trio.move_on_after(FINISH_CLAIM_S), suppress(CortexError):
            await self.run_once(TickBudget())
        self._claims.is_open = False
        while self._leases:
            with trio.move_on_after(FINISH_CHECK_S):  # a lost lease ends a delivery without a write
                await self._outcomes.wait_until_written()

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Claim once; alone, without `run`, send what is due and return when it is recorded."""
        if self._delivery.is_running:
            return await self._claims.claim()
        items = 0
        if self._read_breakers is not None:
            await self._read_breakers(budget)
        async with self._open():
            while items < budget.items and trio.current_time() < budget.until:
                was_idle = not self._leases
                result = await self._claims.claim()
                items += result.items
                if was_idle and not result.items:
                    break
                await self._progress()
            while self._leases and trio.current_time() < budget.until:
                await self._progress()
        return TickResult(items=items)

    async def _progress(self) -> None:
        """Wait until outcomes were written."""
        if self._leases:
            await self._outcomes.wait_until_written()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        """Run deliveries beside the body; hand everything back at the end."""
        raised: CortexError | None = None
        async with trio.open_nursery() as nursery:
            opened, stop = trio.Event(), trio.Event()
            # Not `nursery.start`: cancelled, it waits for the child, and the child for `stop`.
            nursery.start_soon(self._run_deliveries, opened, stop)
            try:
                await opened.wait()
                yield
            except CortexError as error:  # the nursery would wrap it
                raised = error
            finally:
                self._claims.is_open = False
                self._delivery.stop()
                stop.set()
        if raised is not None:
            raise raised

    async def _run_deliveries(self, opened: trio.Event, stop: trio.Event) -> None:
        """Outlive a cancellation by a bounded time: what is under way may end and be recorded."""
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as own:
                    own.start_soon(self._outcomes.record, name="outbox outcomes")
                    own.start_soon(self._leases.renew, name="outbox leases")
                    async with self._delivery.open():
                        self._claims.is_open = True
                        opened.set()
                        await stop.wait()
                    own.cancel_scope.cancel(reason="outbox stops")
            finally:
                await self._hand_back()  # noqa: ASYNC102 -- bounded by itself

    async def _hand_back(self) -> None:
        """Return the messages that are left to other pods."""
        try:
            self._lanes.empty()
            for held in self._leases.undecided:
                self._outcomes.end(held, handed_back())
            with trio.move_on_after(HAND_BACK_S, shield=True):
                try:
                    await self._outcomes.write()
                except CortexError as error:
                    _log.warning("messages not handed back", error=error.message)
        finally:
            self._leases.clear()
            self._outcomes.clear()
            await self._poster.aclose()
