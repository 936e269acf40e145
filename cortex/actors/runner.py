"""An actor that does one bounded piece of work again and again: the one loop of all runners.

A subclass declares its name, what wakes it early, and `tick(budget)`. A tick needs neither a
nursery nor a running loop, so a command can call it without a pod.

Owns: the pauses between the ticks. After work the next tick comes soon, without work later and
later, unless the tick names a time; a runner with a fixed interval ticks at that. A hint
shortens the present pause. There are never two ticks at once.

On failure: `UnavailableError` is logged once per outage and waited out with backoff. Anything else
is logged, and the next tick comes half a minute later; a runner with a fixed interval crashes
instead, and the supervisor runs the same object again. No hint shortens these pauses.
On stop: nothing to do; a tick is cancelled wherever it waits.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

import attrs
import structlog
import trio

from cortex.actors.backoff import OUTAGE, LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.crash_points import one_operation
from cortex.domain.backoff import Backoff

ITEMS: Final = 200
"""What one tick may handle, unless its runner or its caller says otherwise."""
TICK_S: Final = 60.0
"""How long one tick may begin further work."""
AT_ONCE: Final = 0.0
"""Returned by a tick that left work behind: call it again without a pause."""
SOON_S: Final = 0.25
"""The pause after work."""
IDLE: Final = Backoff(base_s=1.0, cap_s=30.0)
IDLE_JITTER_S: Final = 0.5
ERROR_S: Final = 30.0
ERROR_JITTER_S: Final = 2.0
NAMED_JITTER: Final = 0.1
"""The part of a pause that a tick named by which it may become longer: never shorter, since the
tick knows when something is due."""
NAMED_JITTER_MAX_S: Final = 0.1

_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class TickBudget:
    """How much one tick may do."""

    items: int = ITEMS
    until: float = math.inf
    """By trio's clock: from then on the tick begins nothing new."""


@attrs.frozen(kw_only=True)
class TickResult:
    """What one tick did."""

    items: int = 0
    """Items handled."""
    is_skipped: bool = False
    """Another process holds the runner's lock; this tick did nothing."""
    next_s: float | None = None
    """Seconds to the next call: `AT_ONCE` when more is due; None for the pace of the loop."""
    is_partial: bool = False
    """It has looked at a part of what there is; the next call continues behind it."""

    @property
    def is_more_due(self) -> bool:
        """A command that ticks once should call again, as far as its budget allows."""
        return self.is_partial or self.next_s == AT_ONCE


@attrs.frozen(kw_only=True)
class Run:
    """One tick that has ended, as the recorder and the metrics count it."""

    name: str
    longest_s: float
    """The longest time between two runs of its runner."""
    started_at: float
    """By trio's clock."""
    duration_s: float
    items: int
    is_skipped: bool
    error: BaseException | None
    """Why it failed; None: it succeeded."""


class Runner(ABC):
    """A periodic actor; `wake` and `due_in` may be called from anywhere in the trio thread."""

    name: ClassVar[str]
    failure: ClassVar[str]
    """The event that is logged when the database is unavailable."""
    items_max: ClassVar[int] = ITEMS
    """The budget of one tick in a pod."""
    woken_by: ClassVar[frozenset[str]] = frozenset()
    """The notification channels and local hints that end a pause early."""
    jitter: ClassVar[float] = 0.1
    """The share of a fixed interval that a random draw may take off."""
    runs_until_sign_off: ClassVar[bool] = False
    """A pod stops it after its jobs, whose ends are work for it; others stop with the intake."""
    is_ready_at_once: ClassVar[bool] = True
    """Ready to serve before the first tick; otherwise after it."""

    def __init__(
        self,
        *,
        rng: random.Random,
        interval_s: float | None = None,
        backoff: Backoff = OUTAGE,
    ) -> None:
        """`interval_s`: a fixed interval, less the jitter, for what one pod does for itself."""
        self._rng = rng
        self._interval_s = interval_s
        self._pacer = Pacer(rng=rng, jitter=0.0 if interval_s is None else self.jitter)
        self._backoff = LoopBackoff(rng=rng, backoff=backoff)
        self._due_at = math.inf
        self._idle_count = 0
        self._turn = trio.Lock()
        self.on_run: Callable[[Run], None] = lambda _: None
        """Called after each tick; must not raise."""

    @property
    def longest_s(self) -> float:
        """The longest pause of its loop that is no sign of trouble."""
        return self._interval_s or IDLE.cap_s

    def wake(self) -> None:
        """Tick at once, or once more at once if a tick is under way."""
        self.due_in(-math.inf)

    def due_in(self, seconds: float) -> None:
        """Tick no later than when something becomes due, even if the pause lasts longer.

        Unlike `wake`, this keeps the pause after work between two ticks: such hints may be many.
        """
        at = trio.current_time() + seconds
        if at < self._due_at:
            self._due_at = at
            self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tick until cancelled."""
        if self.is_ready_at_once:
            task_status.started()
        pause_s = await self._tick_or_back_off()
        if not self.is_ready_at_once:
            task_status.started()
        while True:
            await self._pause(pause_s)
            pause_s = await self._tick_or_back_off()

    async def finish(self) -> None:
        """Begin nothing more; wait until the current work has ended. The caller limits the time."""
        await trio.lowlevel.checkpoint()

    @abstractmethod
    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Do one bounded piece of the work; may be called without `run`."""

    async def run_once(self, budget: TickBudget) -> TickResult:
        """Tick once, and report the run unless it is cancelled; raises what the tick raises.

        Ticks of one runner in one process take turns.
        """
        async with self._turn:
            return await self._run_once(budget)

    async def _run_once(self, budget: TickBudget) -> TickResult:
        began = trio.current_time()
        try:
            with one_operation(self.name):
                result = await self.tick(budget)
        except Exception as error:
            self._report(began, TickResult(), error)
            raise
        self._report(began, result, None)
        return result

    def _report(self, began: float, result: TickResult, error: Exception | None) -> None:
        self.on_run(
            Run(
                name=self.name,
                longest_s=self.longest_s,
                started_at=began,
                duration_s=trio.current_time() - began,
                items=result.items,
                is_skipped=result.is_skipped,
                error=error,
            )
        )

    async def _tick_or_back_off(self) -> float:
        """Tick once; return the pause after it."""
        self._due_at = math.inf
        result: TickResult | None = None
        until = trio.current_time() + TICK_S
        try:
            async with self._backoff.pause_if_unavailable(_log, self.failure):
                result = await self.run_once(TickBudget(items=self.items_max, until=until))
        except Exception as error:
            if self._interval_s is not None:
                raise
            pause_s = ERROR_S + self._rng.uniform(0.0, ERROR_JITTER_S)
            _log.error("runner failed", runner=self.name, pause_s=round(pause_s), exc_info=error)
            await trio.sleep(pause_s)
            return AT_ONCE
        return self._pause_after(result)

    def _pause_after(self, result: TickResult | None) -> float:
        if result is None:  # unavailable, and it has paused for that
            return self._interval_s or AT_ONCE
        if result.items:
            self._idle_count = 0
        if result.next_s is not None:
            longer_s = min(NAMED_JITTER * result.next_s, NAMED_JITTER_MAX_S)
            return result.next_s + self._rng.uniform(0.0, longer_s)
        if self._interval_s is not None:
            return self._interval_s
        if result.items:
            return SOON_S
        self._idle_count += 1
        return IDLE.longest_s(self._idle_count) + self._rng.uniform(0.0, IDLE_JITTER_S)

    async def _pause(self, pause_s: float) -> None:
        """Pause that long, or until a hint asks for a tick."""
        if pause_s <= 0:
            await trio.lowlevel.checkpoint()
            return
        began = trio.current_time()
        while True:
            # What is due soon waits for the pause after work; a wake-up, due since ever, does not.
            due_at = max(self._due_at, began + SOON_S) if self._due_at > -math.inf else -math.inf
            left_s = min(due_at, began + pause_s) - trio.current_time()
            if left_s <= 0 or not await self._pacer.wait(left_s):
                break
        if self._due_at < math.inf:
            self._idle_count = 0
