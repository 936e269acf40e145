"""Sends the messages of the outbox: claims them, hands them to senders, records the outcomes.

Owns: the messages whose leases this pod has. Reads: the subscriptions. Writes: the outbox.
Invariants: a message is sent while its lease is held, and recorded only by who holds it; one that
was sent and not recorded is sent again under the same id. Messages of one key are never in two
hands. Deliveries run outside of transactions. What waits for a breaker waits in the database.

On failure: while the database is unavailable, nothing is claimed, and outcomes are kept and written
when it is back; leases that ended meanwhile are lost. A sender that raises or hangs fails its
message, and delays no other subscription.
On stop: `finish` claims no more, and lets calls under way end as long as the drain lasts. Then they
get `GRACE_S`, and all leases are handed back.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.runner import AT_ONCE, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.breaker import BreakerState
from cortex.domain.clock import Chance
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import CortexError, UnavailableError, UsageError
from cortex.domain.failure import Failure
from cortex.domain.messages.approval_text import with_link
from cortex.domain.messages.message import (
    ERROR_MAX,
    SENT,
    Message,
    MessageStatus,
    Outcome,
    failed,
    handed_back,
)
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.domain.redaction import clean_text
from cortex.durable.calls import CircuitBreakers
from cortex.durable.message_handlers import MessageHandler
from cortex.durable.tracing import Deliveries, Untraced
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.http_client.proxies import Proxies
from cortex.postgres.bridge import Port
from cortex.runtime.hints import POD_LOST
from cortex.runtime.liveness.listener import BREAKER, OUTBOX
from cortex.runtime.outbox.lanes import HEAVY_HANDLERS, Held, Lane, shares
from cortex.runtime.outbox.senders import SEND_S, SenderParts, send_within
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions

RENEW_S: Final = 15.0
RECLAIM_S: Final = 2.0
"""How soon after the death of a pod its messages are free, at most this much later."""
RECLAIM_MAX: Final = 500
READ_SUBSCRIPTIONS_S: Final = 1.0
IDLE_S: Final = 30.0
BREAKER_S: Final = 1.0
"""While a breaker is not closed: it may be probed after a time."""
GRACE_S: Final = 2.0
FINISH_CLAIM_S: Final = 1.0
"""A pod that leaves does not wait for a database that is away."""
FINISH_LOOK_S: Final = 0.5
HAND_BACK_S: Final = 2.0
RETRY_AFTER_MAX_S: Final = 300.0

_log = structlog.get_logger(__name__)


class Meter(Protocol):
    """Counts what became of messages."""

    def message_ended(self, channel: str, outcome: str, seconds: float) -> None: ...


class Breakers(CircuitBreakers, Protocol):
    """Circuit breakers, and what is known of them."""

    def states(self) -> Mapping[str, BreakerState]:
        """Return the known states; those that are missing are closed."""

    def next_probe_s(self, names: Collection[str]) -> float | None:
        """Return in how many seconds the first open one of these may be probed; None: none is."""


class NoMeter:
    """Counts nothing."""

    def message_ended(self, channel: str, outcome: str, seconds: float) -> None: ...


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
        self._port = port
        self._pod_id = pod_id
        self._breakers = breakers
        self._read_breakers = read_breakers
        self._page_url = page_url
        self._handlers = handlers or {}
        self._allowed = AllowedAddresses.of_environment() if allowed is None else allowed
        self._meter: Meter = meter or NoMeter()
        self._deliveries: Deliveries = deliveries or Untraced()
        self._poster = Poster(self._allowed, proxies=Proxies.of_environment())
        self._parts = SenderParts(
            poster=self._poster,
            allowed=self._allowed,
            handlers=self._handlers,
            unix_ms=chance.unix_ms,
            send_s=send_s,
        )
        self._lanes: dict[str, Lane] = {}
        self._held: dict[int, Held] = {}
        self._ended: list[tuple[Held, Outcome]] = []
        self._has_ended = trio.Event()
        self._is_written = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._heavy = trio.CapacityLimiter(HEAVY_HANDLERS)
        self._read_at = self._reclaim_at = float("-inf")
        self._are_handlers_known = not self._handlers
        self._is_stopping = False
        self._is_finishing = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self._open():
            await super().run(task_status=task_status)

    async def finish(self) -> None:
        """Claim what is due once more, then nothing; return when no delivery is under way.

        The caller limits the time.
        """
        if self._nursery is None:
            return
        with trio.move_on_after(FINISH_CLAIM_S), suppress(CortexError):
            await self.run_once(TickBudget())
        self._is_finishing = True
        while self._held:
            with trio.move_on_after(FINISH_LOOK_S):  # a lost lease ends a delivery without a write
                await self._is_written.wait()

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Claim once; alone, without `run`, send what is due and return when it is recorded."""
        if self._nursery is not None:
            return await self._claim()
        items = 0
        if self._read_breakers is not None:
            await self._read_breakers(budget)
        async with self._open():
            while items < budget.items and trio.current_time() < budget.until:
                was_idle = not self._held
                result = await self._claim()
                items += result.items
                if was_idle and not result.items:
                    break
                await self._progress()
            while self._held and trio.current_time() < budget.until:
                await self._progress()
        return TickResult(items=items)

    # --- claiming

    async def _claim(self) -> TickResult:
        """Take due messages for all lanes that have room."""
        await self._keep_house()
        rooms = self._rooms()
        most = shares(rooms, self._lanes.values())
        if not most:
            return TickResult(next_s=self._look_again_s(None))
        asked_at = trio.current_time()
        crash_point("before_outbox_claim")
        claimed = await self._port(store.claim, pod_id=self._pod_id, most=most)
        if claimed.messages:
            crash_point("after_outbox_claim")
        counts = dict.fromkeys(most, 0)
        for message in claimed.messages:
            counts[message.subscription] += 1
            self._take(message, asked_at)
        were_parked = claimed.read_count > len(claimed.messages)
        for name, count in counts.items():
            self._lanes[name].has_more = count == most[name] or were_parked
        if any(self._lanes[name].has_more for name in most if self._rooms().get(name)):
            return TickResult(items=len(claimed.messages), next_s=AT_ONCE)
        due_s = await self._port(store.next_due_s, subscriptions=list(most))
        return TickResult(items=len(claimed.messages), next_s=self._look_again_s(due_s))

    def _look_again_s(self, due_s: float | None) -> float | None:
        """Return when to claim again; None: at the loop's own pace. Breakers change by time."""
        names = [each.subscription.breaker for each in self._lanes.values()]
        probe_s = self._breakers.next_probe_s(names)
        waits = [each for each in (due_s, probe_s) if each is not None]
        return min(*waits, IDLE_S) if waits else None

    def _rooms(self) -> dict[str, int]:
        if self._is_stopping or self._is_finishing:
            return {}
        states = self._breakers.states()
        rooms = {}
        for name, lane in self._lanes.items():
            room = lane.room(states.get(lane.subscription.breaker, BreakerState.CLOSED))
            if room > 0:
                rooms[name] = room
        return rooms

    def _take(self, message: Message, asked_at: float) -> None:
        lane = self._lanes[message.subscription]
        held = self._held[message.seq] = Held(message=message, until=0.0)
        held.renewed(asked_at)
        lane.queue.append(held)
        if lane.running < lane.limit and self._nursery is not None:
            lane.running += 1
            self._nursery.start_soon(self._work, lane, name=f"outbox {message.subscription}")

    async def _keep_house(self) -> None:
        """Read the subscriptions and take over lost messages, now and then."""
        now = trio.current_time()
        if not self._are_handlers_known:
            await self._subscribe_handlers()
            self._are_handlers_known = True
        if now >= self._read_at + READ_SUBSCRIPTIONS_S:
            self._read_at = now
            self._refresh(await self._port(subscriptions.every))
        if now >= self._reclaim_at + RECLAIM_S:
            self._reclaim_at = now
            crash_point("before_outbox_reclaim")
            if taken := await self._port(store.reclaim, limit=RECLAIM_MAX):
                _log.warning("messages of lost leases taken back", messages=taken)
            await self._port(store.give_up, limit=RECLAIM_MAX)
            crash_point("after_outbox_reclaim")

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

    def _refresh(self, rows: list[Subscription]) -> None:
        known = {}
        for row in rows:
            lane = self._lanes.get(row.name)
            if lane is not None and lane.subscription == row:
                known[row.name] = lane
                continue
            try:
                sender = self._parts.sender(row)
            except CortexError as error:
                _log.warning("subscription not usable", name=row.name, error=error.message)
                continue
            if sender is not None:
                known[row.name] = Lane(subscription=row, sender=sender)
        for name, lane in self._lanes.items():
            if known.get(name) is not lane:
                for held in lane.queue:
                    self._end(held, handed_back())
                lane.queue.clear()
        self._lanes = known

    # --- sending

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
                    self.wake()
        finally:
            lane.running -= 1
        if lane.has_more:
            self.wake()

    async def _deliver(self, lane: Lane, held: Held) -> None:
        if not held.is_sure or self._is_stopping:
            self._end(held, handed_back())
            return
        began = trio.current_time()
        outcome = handed_back(error="the pod was stopped while it sent this")
        try:
            with held.scope:
                outcome = await self._outcome(lane, held.message)
        finally:
            lane.took(trio.current_time() - began)
            if held.is_lost:
                self._held.pop(held.message.seq, None)
            else:
                self._end(held, outcome)
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

    # --- recording

    def _end(self, held: Held, outcome: Outcome) -> None:
        self._ended.append((held, outcome))
        self._has_ended.set()

    async def _write_outcomes(self) -> None:
        """Record outcomes in batches as they come, as long as it takes."""
        backoff = LoopBackoff(rng=self._rng)
        while True:
            await self._has_ended.wait()
            async with backoff.pause_if_unavailable(_log, "outcomes of messages not recorded"):
                await self._write()

    async def _write(self) -> None:
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
                self._held.pop(held.message.seq, None)
            del self._ended[: len(batch)]
            if recorded.unparked_count:
                self.wake()
        if not self._ended:
            self._has_ended = trio.Event()
        self._is_written.set()
        self._is_written = trio.Event()

    async def _renew_leases(self) -> None:
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

    def _renewed(self, held: list[Held], still: frozenset[int], asked_at: float) -> None:
        ended = {each.message.seq for each, _ in self._ended}
        for each in held:
            seq = each.message.seq
            if seq in still:
                each.renewed(asked_at)
            elif seq in self._held and seq not in ended:
                _log.warning("lease lost", message=str(each.message.id))
                each.lose()
                self._held.pop(seq, None)

    # --- opening and closing

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
                self._is_stopping = True
                stop.set()
        if raised is not None:
            raise raised

    async def _run_deliveries(self, opened: trio.Event, stop: trio.Event) -> None:
        """Outlive a cancellation by a bounded time: what is under way may end and be recorded."""
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as own:
                    own.start_soon(self._write_outcomes, name="outbox outcomes")
                    own.start_soon(self._renew_leases, name="outbox leases")
                    async with trio.open_nursery() as senders:
                        self._nursery, self._is_stopping = senders, False
                        self._is_finishing = False
                        opened.set()
                        await stop.wait()
                        self._nursery = None
                        senders.cancel_scope.deadline = trio.current_time() + GRACE_S
                    own.cancel_scope.cancel(reason="outbox stops")
            finally:
                self._nursery = None
                await self._hand_back()  # noqa: ASYNC102 -- bounded by itself

    async def _hand_back(self) -> None:
        """Return the messages that are left to other pods."""
        try:
            for lane in self._lanes.values():
                lane.queue.clear()
            ended = {held.message.seq for held, _ in self._ended}
            for seq, held in self._held.items():
                if seq not in ended and not held.is_lost:
                    self._end(held, handed_back())
            with trio.move_on_after(HAND_BACK_S, shield=True):
                try:
                    await self._write()
                except CortexError as error:
                    _log.warning("messages not handed back", error=error.message)
        finally:
            self._held.clear()
            self._ended.clear()
            await self._poster.aclose()

    async def _progress(self) -> None:
        """Wait until outcomes were written."""
        if self._held:
            await self._is_written.wait()
