"""An actor that does one bounded piece of work again and again: the one loop of all sweeps.

A subclass declares its name, its interval, what wakes it early, and `tick()`. A tick needs neither
a nursery nor a running loop, so a command can call it without a pod.

Owns: the pauses between the ticks and the backoff while the database is unavailable.

On failure: `UnavailableError` is logged once per outage and waited out with backoff; anything else
is a crash, and the supervisor runs the same object again.
On stop: nothing to do; a tick is cancelled wherever it waits.
"""

import random
from abc import ABC, abstractmethod
from typing import ClassVar, Final

import structlog
import trio

from cortex.actors.backoff import OUTAGE, LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.domain.backoff import Backoff

AT_ONCE: Final = 0.0
"""Returned by a tick that left work behind: call it again without a pause."""

_log = structlog.get_logger(__name__)


class Runner(ABC):
    """A periodic actor; `wake` may be called from anywhere in the trio thread."""

    name: ClassVar[str]
    failure: ClassVar[str]
    """The event that is logged when the database is unavailable."""
    jitter: ClassVar[float] = 0.1
    """The share of each pause that a random draw may take off."""
    woken_by: ClassVar[frozenset[str]] = frozenset()
    """The notification channels whose messages end a pause early."""
    is_ready_at_once: ClassVar[bool] = True
    """Ready to serve before the first tick; otherwise after it."""

    def __init__(
        self,
        *,
        rng: random.Random,
        interval_s: float,
        backoff: Backoff = OUTAGE,
    ) -> None:
        """`interval_s`: between two ticks, less the jitter, unless a tick says otherwise."""
        self.interval_s = interval_s
        self._pacer = Pacer(rng=rng, jitter=self.jitter)
        self._backoff = LoopBackoff(rng=rng, backoff=backoff)

    def wake(self) -> None:
        """Tick at once, or once more at once if a tick is under way."""
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tick until cancelled."""
        if self.is_ready_at_once:
            task_status.started()
        pause_s = await self._tick_or_back_off()
        if not self.is_ready_at_once:
            task_status.started()
        while True:
            if pause_s > 0:
                await self._pacer.wait(pause_s)
            else:
                await trio.lowlevel.checkpoint()
            pause_s = await self._tick_or_back_off()

    @abstractmethod
    async def tick(self) -> float | None:
        """Do one bounded piece of the work; may be called without `run`.

        Returns the seconds until the next call: None for the interval, `AT_ONCE` when more is due.
        """

    async def _tick_or_back_off(self) -> float:
        pause_s: float | None = None
        async with self._backoff.pause_if_unavailable(_log, self.failure):
            pause_s = await self.tick()
        return self.interval_s if pause_s is None else pause_s
