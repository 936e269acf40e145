"""The clock of tests: the database's clock for jobs. It stands still, and skips every wait."""

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
from trio.lowlevel import current_statistics
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.durable.threads import threads_in_use

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
CHECK_S: Final = 0.001
"""Real time between two looks at threads and sockets that a job waits for."""
ROUNDING_S: Final = 1e-6
"""Added to each jump: a sum that is rounded down would never reach its deadline."""


@attrs.define
class Clock:
    """What jobs take for the time of the database: from 2026-01-01 on, unless it is advanced."""

    now: datetime = BEGIN
    """Aware, in UTC."""

    def advance(
        self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let time pass before the next run."""
        length = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if length < timedelta(0):
            raise ValueError(f"the clock cannot go back by {-length}")
        self.now += length


@attrs.define
class RunClock:
    """The same clock while a job runs: it goes with trio's."""

    clock: Clock
    mock: MockClock
    _began: datetime = attrs.field(init=False)
    _waiting_count: int = attrs.field(default=0, init=False)
    _woken_count: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._began = self.clock.now

    async def now(self) -> datetime:
        return self.read()

    def read(self) -> datetime:
        now = self._began + timedelta(seconds=self.mock.current_time())
        self.clock.now = max(self.clock.now, now)  # another run may be further
        return now

    async def until_all_wait(self) -> None:
        """Return, without a jump of the clock, once no task of the job can go on by itself."""
        self._waiting_count += 1
        try:
            await wait_all_tasks_blocked()
        finally:
            self._waiting_count -= 1
            self._woken_count += 1

    async def skip_waits(self) -> None:
        """Jump to the next deadline whenever the job only waits for time; never returns.

        While a job waits for a thread, for asyncio code or for a socket, the clock goes as fast as
        real time does.
        """
        idle_count = _sockets_count()
        while True:
            woken_count = self._woken_count
            await wait_all_tasks_blocked()
            if self._waiting_count or self._woken_count != woken_count:
                continue  # they go on now
            if threads_in_use() or _asyncio_calls() or _sockets_count() > idle_count:
                began = time.perf_counter()
                await wait_all_tasks_blocked(CHECK_S)
                self.mock.jump(time.perf_counter() - began)
                continue
            left_s = current_statistics().seconds_to_next_deadline
            if 0 < left_s < float("inf"):
                self.mock.jump(left_s + ROUNDING_S)
            else:  # what is due runs next, or something outside of trio wakes the job
                await wait_all_tasks_blocked(CHECK_S)


def _sockets_count() -> int:
    io = current_statistics().io_statistics
    return getattr(io, "tasks_waiting_read", 0) + getattr(io, "tasks_waiting_write", 0)


def _asyncio_calls() -> int:
    module = sys.modules.get("cortex.durable.asyncio_thread")
    return 0 if module is None else module.calls_under_way()
