"""One circuit breaker as this pod sees it, and this pod's calls through it.

Owns: the local copy of the breaker, the slow start of its calls, its probe. Reads and writes: the
breaker, through `store.breakers`, one report at a time. A report that would change nothing is not
sent, so a healthy breaker costs no statement and an outage only a few, however many calls fail.

On failure: while the database is unavailable, the local copy alone decides about calls.
"""

import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

import attrs
import structlog
import trio

from cortex.domain import breaker as rules
from cortex.domain.backoff import GrowingLimit
from cortex.domain.breaker import Breaker, BreakerState, policy_of
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import CortexError, UnavailableError
from cortex.domain.failure import Failure
from cortex.domain.redaction import clean_text
from cortex.domain.retry import RETRY_AFTER_MAX_S
from cortex.postgres.bridge import Port
from cortex.postgres.database import Database
from cortex.store import breakers as store
from cortex.store.breakers import BreakerReading

# --- Slow start: calls that begin together are admitted in growing rounds, in case of an outage.


START: Final = 4
GROWTH: Final = 3
"""Each answer frees its own permit and adds this many: a round is four times the last."""
UNBOUNDED_FROM: Final = 1000
"""More than the jobs of a pod: from here on no call waits."""
COLD_AFTER_S: Final = 60.0
"""After this long without an answer, the slow start begins again."""


@attrs.define(eq=False)
class Permit:
    """A call's place in the slow start, from its request to its first answer or its end."""

    is_decided: trio.Event = attrs.field(factory=trio.Event)
    is_inside: bool = False

    def decide(self, *, is_inside: bool) -> None:
        self.is_inside = is_inside
        self.is_decided.set()


class SlowStart:
    """Admits the calls of one pod to one other side, a few at first."""

    def __init__(self) -> None:
        self._limit = GrowingLimit(first=START, unlimited_from=UNBOUNDED_FROM)
        self._inside_count = 0
        self._waiting: dict[Permit, None] = {}  # an ordered set
        self._answered_at = trio.current_time()

    @property
    def is_idle(self) -> bool:
        """No call is in flight or waiting, and the next one starts slowly."""
        return not (self._inside_count or self._waiting) and self._is_cold

    async def enter(self) -> Permit | None:
        """Wait for a permit; None if turned away. After `trio.Cancelled` no permit is taken."""
        if self._is_cold:
            self._limit.restart()
        place = Permit()
        if self._has_room and not self._waiting:
            self._inside_count += 1
            place.decide(is_inside=True)
            return place
        self._waiting[place] = None
        try:
            await place.is_decided.wait()
        except trio.Cancelled:
            self._waiting.pop(place, None)
            # granted by another task that was cancelled at the same time and left first
            self.leave(place)
            raise
        return place if place.is_inside else None

    def answer(self, place: Permit) -> None:
        """The other side has begun to answer this call. Calling this again changes nothing."""
        if place.is_inside:
            self._answered_at = trio.current_time()
            self._limit.grow_to(self._limit.value + GROWTH)
            self.leave(place)

    def leave(self, place: Permit) -> None:
        if place.is_inside:
            place.is_inside = False
            self._inside_count -= 1
            self._let_in()

    def restart(self) -> None:
        """A call has failed: admit only a few again."""
        self._limit.restart()

    def turn_away(self) -> None:
        """Return None to all waiting calls."""
        waiting, self._waiting = self._waiting, {}
        for place in waiting:
            place.decide(is_inside=False)

    @property
    def _is_cold(self) -> bool:
        return trio.current_time() - self._answered_at > COLD_AFTER_S

    @property
    def _has_room(self) -> bool:
        return self._inside_count < self._limit.value

    def _let_in(self) -> None:
        while self._waiting and self._has_room:
            place = next(iter(self._waiting))
            del self._waiting[place]
            self._inside_count += 1
            place.decide(is_inside=True)


# ---


PROBE_LEASE_S: Final = 30.0
"""How long a lost prober holds up the others at most; a living one renews its lease, and a dead
pod's is freed when its jobs are taken over."""
RAMP_PROOF_S: Final = 1.0
"""An overloaded server may begin answers and break them off, so an answer that has only begun does
not yet let further calls start."""
GIVE_BACK_BOUND_S: Final = 5.0
AGAIN_S: Final = (1.0, 3.0)
"""A job that met another job's probe tries again after a random delay in this range."""
LATE_S: Final = (0.05, 0.5)
"""Delay added to the probe time so that clock skew does not turn jobs away again."""

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger(__name__)


@attrs.define(eq=False, kw_only=True)
class BreakerContext:
    """What all breaker handles of a pod share: the port, and the last known database time."""

    port: Port
    pod_id: UUID
    rng: random.Random
    wake: Callable[[], None]
    """Asks for the handles to be tended soon."""
    on_opened: Callable[[str], None] = lambda _: None
    """Called with the name of each breaker that a call of this pod opened."""
    retry_after_max_s: float = RETRY_AFTER_MAX_S
    """The longest pause that a server may ask for."""
    is_cut_off: bool = False
    """The last try found the database unavailable: no statement is sent until the next poll."""
    _now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    _observed_at: float = 0.0

    @property
    def now(self) -> datetime:
        """The database's time, as estimated by this pod."""
        return self._now + timedelta(seconds=trio.current_time() - self._observed_at)

    def observe_time(self, now: datetime) -> None:
        """Take over the time that the database has just returned."""
        self._now, self._observed_at = now, trio.current_time()

    async def call_store(
        self,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """Call a store method; log a failure and return None."""
        if self.is_cut_off:
            return None
        try:
            return await self.port(method, *args, **kwargs)
        except CortexError as error:
            self.is_cut_off = isinstance(error, UnavailableError)
            _log.warning("breaker judged by this pod alone", breaker=args[0], error=error.message)
            return None


class BreakerHandle:
    """The calls of this pod to one other side."""

    def __init__(self, name: str, shared: BreakerContext) -> None:
        """Raises `UsageError` for a name that no breaker can have."""
        self.policy = policy_of(name)
        self.name = name
        self.breaker = Breaker(name=name)
        self.ramp = SlowStart()
        self.call_count = 0
        self.tended: set[BreakerAdmission] = set()
        """Calls that hold the probe, or whose answer has begun but is not proven yet."""
        self.shared = shared
        self._lock = trio.Lock()
        self._observed_at = float("-inf")
        self._unreported_count = 0

    @property
    def is_closed(self) -> bool:
        """Calls pass, as far as this pod knows."""
        return self.breaker.state is BreakerState.CLOSED

    @property
    def is_idle(self) -> bool:
        """It can be dropped: no calls, no failures, no slow start."""
        return not self.call_count and self.breaker.is_healthy and self.ramp.is_idle

    def learn(self, breaker: Breaker, *, asked_at: float) -> None:
        """Take over what the database said to a question of that time, unless it is old."""
        before = self.breaker
        if breaker.version < before.version:
            return
        self.breaker, self._observed_at = breaker, asked_at
        if breaker.state is not before.state:
            self.ramp.restart()
            _log_state(breaker)
        if not self.is_closed:
            self.ramp.turn_away()
        if breaker.escalated_at is not None and before.escalated_at is None:
            _log.warning(
                "breaker needs a person", breaker=self.name, failures=breaker.failures,
                error=breaker.last_error,
            )  # fmt: skip

    def learn_absence(self, *, asked_at: float) -> None:
        """The breaker was not among the unhealthy ones at that time."""
        if self._observed_at < asked_at and not self.breaker.is_healthy:
            self.learn(rules.closed(self.breaker), asked_at=asked_at)

    async def enter(self) -> "BreakerAdmission":
        """Wait until the call may begin. Raises `Suspended` while the breaker is open."""
        while True:
            if not self.is_closed:
                probe = await self._take_probe()
                if probe is not None:
                    return BreakerAdmission(self, probe=probe)
            elif not self.policy.is_ramped:
                return BreakerAdmission(self)
            elif (place := await self.ramp.enter()) is not None:
                if self.is_closed:
                    return BreakerAdmission(self, place=place)
                self.ramp.leave(place)

    async def failed(self, failure: Failure, *, probe: int | None) -> None:
        """Count a failed call, here and in the database."""
        self._unreported_count += 1
        stored_failure = attrs.evolve(
            failure, message=clean_text(failure.message, limit=rules.ERROR_MAX)
        )
        async with self._lock:
            count, now = self._unreported_count, self.shared.now
            most_s = self.shared.retry_after_max_s
            after = rules.failed(
                self.breaker,
                stored_failure,
                now,
                requests=count,
                probe=probe,
                retry_after_max_s=most_s,
            )
            if after is self.breaker and probe is None:
                return
            asked_at = trio.current_time()
            reading = await self.shared.call_store(
                store.failed,
                self.name,
                failure=stored_failure,
                requests=count,
                probe=probe,
                retry_after_max_s=most_s,
            )
            self._settle(reading, after, asked_at=asked_at, reported_count=count)

    async def succeeded(self, *, probe: int | None) -> None:
        """End a run of failures or answer the probe, here and in the database."""
        self._unreported_count += 1
        if probe is None and not self._has_failures:
            return
        async with self._lock:
            count = self._unreported_count
            after = rules.succeeded(self.breaker, requests=count, probe=probe)
            if after is self.breaker and probe is None:
                return
            asked_at = trio.current_time()
            reading = await self.shared.call_store(
                store.succeeded, self.name, requests=count, probe=probe
            )
            self._settle(reading, after, asked_at=asked_at, reported_count=count)

    async def give_back(self, probe: int) -> None:
        """Release the probe for another call."""
        async with self._lock:
            asked_at = trio.current_time()
            after = rules.given_back(self.breaker, probe=probe)
            reading = await self.shared.call_store(store.give_back, self.name, probe=probe)
            self._settle(reading, after, asked_at=asked_at)

    async def renew(self, probe: int) -> None:
        """Renew the lease of the probe; if that fails, the probe may count as lost."""
        async with self._lock:
            asked_at = trio.current_time()
            reading = await self.shared.call_store(
                store.renew_probe, self.name, probe=probe, lease_s=PROBE_LEASE_S
            )
            self._settle(reading, self.breaker, asked_at=asked_at)

    async def move_on(self) -> None:
        """Write a state change that is due by time alone."""
        async with self._lock:
            after = rules.moved_on(self.breaker, self.shared.now)
            if after is self.breaker:
                return
            asked_at = trio.current_time()
            reading = await self.shared.call_store(store.move_on, self.name)
            self._settle(reading, after, asked_at=asked_at)

    def suspended(self, failure: Failure | None = None) -> Suspended:
        """Return why no call may begin now and when to try again; `failure` is the caller's own.

        The text is stored with the attempt, so it holds no instant: readers are in different time
        zones.
        """
        breaker, rng = self.breaker, self.shared.rng
        if breaker.forced_by is not None and not self._may_be_tried:
            # A person may close it at any time or shorten the override: try again now and then.
            delay_s = rng.uniform(0.5, 1.0) * self.policy.open_s
            if breaker.open_until is not None:
                left_s = (breaker.open_until - self.shared.now).total_seconds()
                delay_s = min(delay_s, left_s + rng.uniform(*LATE_S))
            why = f"is held open by {breaker.forced_by}: {breaker.forced_reason}"
        elif breaker.open_until is not None and not self._may_be_tried:
            left_s = (breaker.open_until - self.shared.now).total_seconds()
            delay_s = max(0.0, left_s) + rng.uniform(*LATE_S)
            why = f"is open: {breaker.last_error}"
        else:
            delay_s = rng.uniform(*AGAIN_S)
            why = f"is tried by one call at a time: {breaker.last_error}"
        since = breaker.opened_at
        return Suspended(
            self.name,
            f"breaker {self.name} {why}",
            delay_s=delay_s,
            failure=failure,
            opened_unix_s=None if since is None else since.timestamp(),
        )

    @property
    def _has_failures(self) -> bool:
        return self.is_closed and self.breaker.failures > 0

    @property
    def _may_be_tried(self) -> bool:
        is_probed = self.breaker.state is BreakerState.HALF_OPEN
        return is_probed or self.breaker.may_be_probed(self.shared.now)

    async def _take_probe(self) -> int | None:
        """Ask for the probe; None if the breaker has closed meanwhile. Raises `Suspended`."""
        if not self.breaker.may_be_probed(self.shared.now):
            raise self.suspended()
        async with self._lock:
            if self.breaker.may_be_probed(self.shared.now):
                asked_at = trio.current_time()
                answer = await self.shared.call_store(
                    store.take_probe, self.name, pod_id=self.shared.pod_id, lease_s=PROBE_LEASE_S
                )
                reading, probe = answer or (None, None)
                self._settle(reading, self.breaker, asked_at=asked_at)
                if probe is not None:
                    return probe
        if self.is_closed:
            return None
        raise self.suspended()

    def _settle(
        self,
        reading: BreakerReading | None,
        expected: Breaker,
        *,
        asked_at: float,
        reported_count: int = 0,
    ) -> None:
        """Take over the database's reading, or the expected state while there is none."""
        changes = rules.changes(self.breaker, expected) if reading is None else reading.changes
        if rules.OPENED in changes:
            self.shared.on_opened(self.name)
        if reading is None:
            self.learn(expected, asked_at=asked_at)
            return
        self._unreported_count -= reported_count
        self.shared.observe_time(reading.now)
        self.learn(reading.breaker, asked_at=asked_at)


class BreakerAdmission:
    """One call that may start; implements `cortex.durable.calls.Admission`."""

    def __init__(
        self, line: BreakerHandle, *, place: Permit | None = None, probe: int | None = None
    ) -> None:
        self._line = line
        self._place = place
        self._probe = probe
        self._ramps_at = self._proven_at = math.inf
        self._renew_at = trio.current_time() + PROBE_LEASE_S / 2
        if probe is not None:
            line.tended.add(self)

    def opened(self, *, idle_s: float) -> None:
        """The other side has begun to answer; an error may still follow inside the answer.

        Without an error, further calls may start after `RAMP_PROOF_S`, and a probe has succeeded
        after `idle_s`.
        """
        if self._proven_at == math.inf:
            now = trio.current_time()
            self._ramps_at, self._proven_at = now + RAMP_PROOF_S, now + idle_s
            self._line.tended.add(self)

    async def succeeded(self) -> None:
        """The call has succeeded. A report that fails is only logged."""
        if self._place is not None:
            self._line.ramp.answer(self._place)
        await self._line.succeeded(probe=self._probe)
        self._probe = None

    async def failed(self, failure: Failure) -> None:
        """The call has failed.

        Raises `Suspended` if the failure is transient and the breaker is open now.
        """
        if failure.cls.is_transient:
            self._line.ramp.restart()
        self._ramps_at = math.inf
        await self._line.failed(failure, probe=self._probe)
        self._probe = None
        if failure.cls.is_transient and not self._line.is_closed:
            raise self._line.suspended(failure)

    def ramp_up(self) -> None:
        """Let further calls start once the answer has gone on for a while."""
        if self._place is not None and trio.current_time() >= self._ramps_at:
            self._line.ramp.answer(self._place)
            self._ramps_at = math.inf
        if self._ramps_at == math.inf and self._probe is None:
            self._line.tended.discard(self)

    async def tend(self) -> None:
        """Renew the probe, or report its success once its answer is proven."""
        if self._probe is None:
            return
        now = trio.current_time()
        if now >= self._proven_at:
            await self._line.succeeded(probe=self._probe)
            self._probe = None
        elif now >= self._renew_at:
            self._renew_at = now + PROBE_LEASE_S / 2
            await self._line.renew(self._probe)

    async def leave(self) -> None:
        """End the call, whatever its outcome, and release what it still holds."""
        if self._place is not None:
            self._line.ramp.leave(self._place)
        if self._probe is not None:
            with trio.move_on_after(GIVE_BACK_BOUND_S, shield=True):
                await self._line.give_back(self._probe)
            self._probe = None
        self._line.tended.discard(self)


def _log_state(breaker: Breaker) -> None:
    match breaker.state:
        case BreakerState.OPEN:
            _log.warning("breaker opened", breaker=breaker.name, error=breaker.last_error)
        case BreakerState.HALF_OPEN:
            _log.info("breaker half-open", breaker=breaker.name)
        case BreakerState.CLOSED:
            _log.info("breaker closed", breaker=breaker.name)
