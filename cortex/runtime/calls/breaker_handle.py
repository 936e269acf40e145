"""One circuit breaker as this pod knows it, and this pod's calls through it.

Owns: the local copy of the breaker, the ramp of its calls, its probe. Reads and writes: the
breaker, by `store.breakers`, one report at a time; one that would change nothing is not sent, so a
healthy breaker costs no statement and an outage a few, however many calls fail.

On failure: while the database is not there, calls are judged by the local copy alone.
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
from cortex.postgres.bridge import Port
from cortex.postgres.database import Database
from cortex.store import breakers as store
from cortex.store.breakers import BreakerReading

# --- Lets calls that begin at once go in growing rounds: an outage must not meet them all.


START: Final = 4
GROWTH: Final = 3
"""Each answer lets one call in its own place and so many more: a round is four times the last."""
UNBOUNDED_FROM: Final = 1000
"""More than a pod has jobs: from here on nobody waits."""
COLD_AFTER_S: Final = 60.0
"""Without an answer for so long, what was known of the other side is forgotten."""


@attrs.define(eq=False)
class Permit:
    """A call's place in the ramp, from its asking to its first answer or its end."""

    is_decided: trio.Event = attrs.field(factory=trio.Event)
    is_inside: bool = False

    def decide(self, *, is_inside: bool) -> None:
        """Let it go, or turn it away."""
        self.is_inside = is_inside
        self.is_decided.set()


class SlowStart:
    """The calls of one pod to one other side."""

    def __init__(self) -> None:
        self._limit = GrowingLimit(first=START, unlimited_from=UNBOUNDED_FROM)
        self._inside_count = 0
        self._waiting: dict[Permit, None] = {}  # an ordered set
        self._answered_at = trio.current_time()

    @property
    def is_idle(self) -> bool:
        """Nobody is on the way, nobody waits, and it starts anew."""
        return not (self._inside_count or self._waiting) and self._is_cold

    async def enter(self) -> Permit | None:
        """Wait for a place; None if turned away. After `trio.Cancelled` no place is taken."""
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
            self.leave(place)  # given by one who was cancelled with it, and left first
            raise
        return place if place.is_inside else None

    def answer(self, place: Permit) -> None:
        """The other side has begun to answer this call; told again, it changes nothing."""
        if place.is_inside:
            self._answered_at = trio.current_time()
            self._limit.grow_to(self._limit.value + GROWTH)
            self.leave(place)

    def leave(self, place: Permit) -> None:
        """The call has ended, answered or not."""
        if place.is_inside:
            place.is_inside = False
            self._inside_count -= 1
            self._let_in()

    def restart(self) -> None:
        """A call has failed: begin with a few again."""
        self._limit.restart()

    def turn_away(self) -> None:
        """Let nobody wait any more: all of them get None."""
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
"""A killed prober holds the others up for so long at most; a living one renews it."""
RAMP_PROOF_S: Final = 1.0
"""An overloaded server begins answers and breaks them off: an answer that has only begun does not
let further calls start."""
GIVE_BACK_BOUND_S: Final = 5.0
AGAIN_S: Final = (1.0, 3.0)
"""A job that met somebody else's probe looks again after so many seconds, by chance."""
LATE_S: Final = (0.05, 0.5)
"""So much later than the probe's time jobs come back, lest a clock's lag sends them away again."""

P = ParamSpec("P")
T = TypeVar("T")
_log = structlog.get_logger(__name__)


@attrs.define(eq=False, kw_only=True)
class BreakerContext:
    """What all lines of a pod share: the way to the database, and its clock as last seen."""

    port: Port
    pod_id: UUID
    rng: random.Random
    wake: Callable[[], None]
    """Have the lines tended soon."""
    on_opened: Callable[[str], None] = lambda _: None
    """Told which breaker a call of this pod has opened."""
    is_cut_off: bool = False
    """The database was not there at the last try: nothing is asked until it is looked at again."""
    _now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    _seen_at: float = 0.0

    @property
    def now(self) -> datetime:
        """The database's time, as far as this pod can tell."""
        return self._now + timedelta(seconds=trio.current_time() - self._seen_at)

    def saw(self, now: datetime) -> None:
        """The database has just told its time."""
        self._now, self._seen_at = now, trio.current_time()

    async def ask(
        self,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """Call a store method; None, and a line in the log, if that failed."""
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
        """Calls that hold the probe, or whose answer has begun and still has to prove itself."""
        self.shared = shared
        self._lock = trio.Lock()
        self._seen_at = float("-inf")
        self._untold_count = 0

    @property
    def is_closed(self) -> bool:
        """Calls pass, as far as this pod knows."""
        return self.breaker.state is BreakerState.CLOSED

    @property
    def is_idle(self) -> bool:
        """There is nothing here that would be missed."""
        return not self.call_count and self.breaker.is_healthy and self.ramp.is_idle

    def learn(self, breaker: Breaker, *, asked_at: float) -> None:
        """Take over what the database said to a question of that time, unless it is old."""
        before = self.breaker
        if breaker.version < before.version:
            return
        self.breaker, self._seen_at = breaker, asked_at
        if breaker.state is not before.state:
            self.ramp.restart()
            _tell(breaker)
        if not self.is_closed:
            self.ramp.turn_away()
        if breaker.escalated_at is not None and before.escalated_at is None:
            _log.warning(
                "breaker needs a person", breaker=self.name, failures=breaker.failures,
                error=breaker.last_error,
            )  # fmt: skip

    def learn_absence(self, *, asked_at: float) -> None:
        """It was not among the unhealthy ones at that time."""
        if self._seen_at < asked_at and not self.breaker.is_healthy:
            self.learn(rules.closed(self.breaker), asked_at=asked_at)

    async def enter(self) -> "BreakerAdmission":
        """Wait for leave to call. Raises `Suspended` while the breaker is open."""
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
        self._untold_count += 1
        known = attrs.evolve(failure, message=clean_text(failure.message, limit=rules.ERROR_MAX))
        async with self._lock:
            count, now = self._untold_count, self.shared.now
            after = rules.failed(self.breaker, known, now, requests=count, probe=probe)
            if after is self.breaker and probe is None:
                return
            asked_at = trio.current_time()
            seen = await self.shared.ask(
                store.failed, self.name, failure=known, requests=count, probe=probe
            )
            self._settle(seen, after, asked_at=asked_at, told_count=count)

    async def succeeded(self, *, probe: int | None) -> None:
        """End a row of failures or answer the probe, here and in the database."""
        self._untold_count += 1
        if probe is None and not self._has_failures:
            return
        async with self._lock:
            count = self._untold_count
            after = rules.succeeded(self.breaker, requests=count, probe=probe)
            if after is self.breaker and probe is None:
                return
            asked_at = trio.current_time()
            seen = await self.shared.ask(store.succeeded, self.name, requests=count, probe=probe)
            self._settle(seen, after, asked_at=asked_at, told_count=count)

    async def give_back(self, probe: int) -> None:
        """Let somebody else take the probe."""
        async with self._lock:
            asked_at = trio.current_time()
            after = rules.given_back(self.breaker, probe=probe)
            seen = await self.shared.ask(store.give_back, self.name, probe=probe)
            self._settle(seen, after, asked_at=asked_at)

    async def renew(self, probe: int) -> None:
        """Say that the probe is still on its way; if that cannot be said, it may count as lost."""
        async with self._lock:
            asked_at = trio.current_time()
            seen = await self.shared.ask(
                store.renew_probe, self.name, probe=probe, lease_s=PROBE_LEASE_S
            )
            self._settle(seen, self.breaker, asked_at=asked_at)

    async def move_on(self) -> None:
        """Write what time alone has made of the breaker, if it has."""
        async with self._lock:
            after = rules.moved_on(self.breaker, self.shared.now)
            if after is self.breaker:
                return
            asked_at = trio.current_time()
            seen = await self.shared.ask(store.move_on, self.name)
            self._settle(seen, after, asked_at=asked_at)

    def suspended(self, failure: Failure | None = None) -> Suspended:
        """Say why no call may begin now, and when to look again; `failure` is the caller's own.

        The words are kept with the attempt, so they hold no instant: each reader has another zone.
        """
        breaker, rng = self.breaker, self.shared.rng
        if breaker.forced_by is not None and not self._may_be_tried:
            # Somebody may close it at any time, or hold it shorter: look again now and then.
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
            opened_s=None if since is None else (self.shared.now - since).total_seconds(),
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
                answer = await self.shared.ask(
                    store.take_probe, self.name, pod_id=self.shared.pod_id, lease_s=PROBE_LEASE_S
                )
                seen, probe = answer or (None, None)
                self._settle(seen, self.breaker, asked_at=asked_at)
                if probe is not None:
                    return probe
        if self.is_closed:
            return None
        raise self.suspended()

    def _settle(
        self,
        seen: BreakerReading | None,
        foretold: Breaker,
        *,
        asked_at: float,
        told_count: int = 0,
    ) -> None:
        """Believe the database; without it, one's own reckoning until it is there again."""
        changes = rules.changes(self.breaker, foretold) if seen is None else seen.changes
        if rules.OPENED in changes:
            self.shared.on_opened(self.name)
        if seen is None:
            self.learn(foretold, asked_at=asked_at)
            return
        self._untold_count -= told_count
        self.shared.saw(seen.now)
        self.learn(seen.breaker, asked_at=asked_at)


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

        After `RAMP_PROOF_S` without one, others may start; after `idle_s`, a probe has succeeded.
        """
        if self._proven_at == math.inf:
            now = trio.current_time()
            self._ramps_at, self._proven_at = now + RAMP_PROOF_S, now + idle_s
            self._line.tended.add(self)

    async def succeeded(self) -> None:
        """The call came to its end. A failed report is only logged."""
        if self._place is not None:
            self._line.ramp.answer(self._place)
        await self._line.succeeded(probe=self._probe)
        self._probe = None

    async def failed(self, failure: Failure) -> None:
        """The call failed. Raises `Suspended` if it may pass, and the breaker is open now."""
        if failure.cls.is_transient:
            self._line.ramp.restart()
        self._ramps_at = math.inf
        await self._line.failed(failure, probe=self._probe)
        self._probe = None
        if failure.cls.is_transient and not self._line.is_closed:
            raise self._line.suspended(failure)

    def ramp_up(self) -> None:
        """Let others start once the answer has gone on for a while."""
        if self._place is not None and trio.current_time() >= self._ramps_at:
            self._line.ramp.answer(self._place)
            self._ramps_at = math.inf
        if self._ramps_at == math.inf and self._probe is None:
            self._line.tended.discard(self)

    async def tend(self) -> None:
        """Keep the probe alive, or report its success once its answer has proven itself."""
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
        """The call is over, however it ended: what it still held is free."""
        if self._place is not None:
            self._line.ramp.leave(self._place)
        if self._probe is not None:
            with trio.move_on_after(GIVE_BACK_BOUND_S, shield=True):
                await self._line.give_back(self._probe)
            self._probe = None
        self._line.tended.discard(self)


def _tell(breaker: Breaker) -> None:
    match breaker.state:
        case BreakerState.OPEN:
            _log.warning("breaker opened", breaker=breaker.name, error=breaker.last_error)
        case BreakerState.HALF_OPEN:
            _log.info("breaker half-open", breaker=breaker.name)
        case BreakerState.CLOSED:
            _log.info("breaker closed", breaker=breaker.name)
