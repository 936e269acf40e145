"""Sends the messages of the lanes: a few at once in each, under their leases and breakers.

Owns: the deliveries under way. Invariants: a message is sent while its lease is held; deliveries
run outside of transactions; what waits for a breaker waits in the database.

On failure: a sender that raises or hangs fails its message, and delays no other subscription.
On stop: `stop` begins no delivery; those under way get `GRACE_S`, then they are cancelled and
handed back.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import attrs
import structlog
import trio

from cortex.crash_points import crash_point
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import Failure
from cortex.domain.messages.message import (
    ERROR_MAX,
    SENT,
    Message,
    MessageStatus,
    Outcome,
    failed,
    handed_back,
)
from cortex.domain.redaction import clean_text
from cortex.durable.calls import CircuitBreakers
from cortex.durable.tracing import Deliveries
from cortex.runtime.outbox.approval_text import with_link
from cortex.runtime.outbox.lanes import HEAVY_HANDLERS, Lane
from cortex.runtime.outbox.leases import Held, Leases
from cortex.runtime.outbox.outcomes import Outcomes
from cortex.runtime.outbox.senders import send_within

BREAKER_S: Final = 1.0
"""While a breaker is not closed: it may be probed after a time."""
GRACE_S: Final = 2.0
RETRY_AFTER_MAX_S: Final = 300.0

_log = structlog.get_logger(__name__)


class Meter(Protocol):
    """Counts what became of messages."""

    def message_ended(self, channel: str, outcome: str, seconds: float) -> None: ...


class NoMeter:
    """Counts nothing."""

    def message_ended(self, channel: str, outcome: str, seconds: float) -> None: ...


class Delivery:
    """The handlers of all lanes."""

    def __init__(
        self,
        *,
        leases: Leases,
        outcomes: Outcomes,
        breakers: CircuitBreakers,
        deliveries: Deliveries,
        meter: Meter,
        rng: random.Random,
        page_url: str | None,
        on_more: Callable[[], None],
    ) -> None:
        """`on_more`: called when a lane that may have more in the database has sent what it had.

        `page_url`: where people reach the approval page.
        """
        self._leases = leases
        self._outcomes = outcomes
        self._breakers = breakers
        self._deliveries = deliveries
        self._meter = meter
        self._rng = rng
        self._page_url = page_url
        self._on_more = on_more
        self._heavy = trio.CapacityLimiter(HEAVY_HANDLERS)
        self._nursery: trio.Nursery | None = None
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        return self._nursery is not None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Send what is added during the body; afterwards let what is under way end, for a while."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._is_stopping = nursery, False
                yield
                self._nursery = None
                nursery.cancel_scope.deadline = trio.current_time() + GRACE_S
        finally:
            self._nursery = None

    def stop(self) -> None:
        """Begin no delivery: what waits is handed back."""
        self._is_stopping = True

    def add(self, lane: Lane, held: Held) -> None:
        """Send a message as soon as its lane has a free handler."""
        lane.queue.append(held)
        if lane.running < lane.limit and self._nursery is not None:
            lane.running += 1
            self._nursery.start_soon(self._work, lane, name=f"outbox {lane.subscription.name}")

    async def _work(self, lane: Lane) -> None:
        """Send the messages of a lane one after another until it has none."""
        try:
            while lane.queue:
                held = lane.queue.popleft()
                if lane.subscription.is_heavy:
                    async with self._heavy:
                        await self._deliver(lane, held)
                else:
                    await self._deliver(lane, held)
                if lane.has_more and not lane.queue:
                    self._on_more()
        finally:
            lane.running -= 1
        if lane.has_more:
            self._on_more()

    async def _deliver(self, lane: Lane, held: Held) -> None:
        if not held.is_sure or self._is_stopping:
            self._outcomes.end(held, handed_back())
            return
        began = trio.current_time()
        outcome = handed_back(error="the pod was stopped while it sent this")
        try:
            with held.scope:
                outcome = await self._outcome(lane, held.message)
        finally:
            lane.took(trio.current_time() - began)
            if held.is_lost:
                self._leases.drop(held)
            else:
                self._outcomes.end(held, outcome)
                self._count(lane, held.message, outcome, trio.current_time() - began)

    async def _outcome(self, lane: Lane, message: Message) -> Outcome:
        message = with_link(message, self._page_url)
        crash_point("before_message_sent")
        try:
            if not lane.subscription.has_breaker:
                failure = await self._sent(lane, message)
            else:
                async with self._breakers.admit(lane.subscription.breaker) as admission:
                    failure = await self._sent(lane, message)
                    if failure is None:
                        await admission.succeeded()
                    else:
                        with suppress(Suspended):  # it has opened: the claims see that
                            await admission.failed(failure)
        except Suspended as waits:
            return handed_back(waits.delay_s or BREAKER_S)
        crash_point("after_message_sent")
        if failure is None:
            return SENT
        return failed(
            message.attempt,
            clean_text(failure.message, limit=ERROR_MAX),
            code=failure.code,
            is_final=lane.sender.is_final(failure),
            rng=self._rng,
            redelivery=lane.subscription.redelivery,
            least_s=min(failure.retry_after_s or 0.0, RETRY_AFTER_MAX_S),
        )

    async def _sent(self, lane: Lane, message: Message) -> Failure | None:
        delivery = self._deliveries.delivering(message)
        handed_on = attrs.evolve(message, trace=delivery.handed_on)
        failure = await send_within(lane.sender, handed_on)
        delivery.ended(message, lane.subscription.channel.value, failure)
        return failure

    def _count(self, lane: Lane, message: Message, outcome: Outcome, seconds: float) -> None:
        word = outcome.status.value.lower() if outcome.is_counted else "handed_back"
        if outcome.status is MessageStatus.PENDING and outcome.is_counted:
            word = "retried"
        self._meter.message_ended(lane.subscription.channel.value, word, seconds)
        if outcome.status is MessageStatus.FAILED:
            _log.warning(
                "message failed",
                subscription=lane.subscription.name,
                topic=message.topic,
                id=str(message.id),
                attempts=message.attempt,
                error=outcome.error,
                hint="cortex outbox ls --status failed",
            )
