"""Stores the lines of a pod's jobs in batches, beside its commits.

Owns: the lines between their buffer and the database. Writes: log lines.
Invariants: one batch at a time, so that lines of an attempt are stored in their order; no job, no
commit and no claim ever waits for a line; a line is stored once, however often its batch is sent.

On failure: a batch is sent again after a pause, while the buffer fills; then lines are dropped and
counted. A line that the database refuses is dropped and counted, its neighbours are stored.
On stop: what is left is stored within `FLUSH_S`, after the pod has signed off.
"""

import random
import threading
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
import trio

from cortex.actors.actor import Actor
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, UnavailableError
from cortex.domain.log_line import LogLine
from cortex.durable.job_log import LineBuffer, Why
from cortex.postgres.bridge import Port
from cortex.runtime.metrics.metrics import Metrics
from cortex.store import logs

GATHER_S: Final = 0.2
"""How long lines are gathered: a pod that is killed loses no more than these."""
BATCH_MAX: Final = 1_000
"""Lines in a statement: a few milliseconds of the loop."""
BACKOFF: Final = Backoff(base_s=0.2, cap_s=5.0)
FLUSH_S: Final = 2.0
_log = structlog.get_logger(__name__)


class Exporter(Actor, Protocol):
    """An actor that sends lines elsewhere, too."""

    def add(self, lines: Sequence[LogLine]) -> None:
        """Take lines; never waits."""

    async def flush(self, left_s: float) -> None:
        """Send what is left, within a bound."""


class LogWriter:
    """The actor; its `buffer` takes the lines."""

    name = "log writer"

    def __init__(
        self,
        port: Port,
        exporter: Exporter,
        *,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        """`exporter` gets each line once, whether it can be stored or not."""
        self._port = port
        self._metrics = metrics
        self._dropped = dict.fromkeys(Why, 0)
        self._rng = rng
        self.exporter = exporter
        clock = trio.lowlevel.current_clock()
        self._now = clock.current_time  # any thread may read it
        self.buffer = LineBuffer(self._now)
        self._unsent: list[LogLine] = []
        self._writing = trio.Lock()
        self._pending = trio.Event()
        self._failures_count = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Store lines until cancelled. Idle while no job writes any."""
        token, own_thread = trio.lowlevel.current_trio_token(), threading.get_ident()

        def wake() -> None:
            if threading.get_ident() == own_thread:
                self._pending.set()
                return
            try:
                token.run_sync_soon(self._set_pending, idempotent=True)
            except trio.RunFinishedError:  # a thread that was left behind
                self.buffer.is_closed = True

        self.buffer.wake = wake
        task_status.started()
        while True:
            if not self._has_more:
                await self._pending.wait()
            self._pending = trio.Event()
            if len(self.buffer) < BATCH_MAX:
                await trio.sleep(GATHER_S * self._rng.uniform(0.8, 1.2))
            async with self._writing:
                is_answered = await self._write()
            if not is_answered:
                await trio.sleep(BACKOFF.pause_s(self._failures_count, rng=self._rng, least=0.5))

    def _set_pending(self) -> None:
        self._pending.set()

    @property
    def _has_more(self) -> bool:
        return self.buffer.has_any or bool(self._unsent)

    async def flush(self, left_s: float) -> None:
        """Store what is left, within a bound; lines that come later are counted only."""
        self.buffer.end_lines()
        self.buffer.is_closed = True
        with trio.move_on_after(min(FLUSH_S, left_s), shield=True) as limit:
            async with self._writing:
                while self._has_more and await self._write():
                    pass
        lost_count = len(self._unsent) + len(self.buffer)
        if lost_count:
            self.buffer.give_up([*self._unsent, *self.buffer.take(lost_count)], Why.BUFFER)
            _log.warning(
                "log lines lost",
                lines=lost_count,
                timed_out=limit.cancelled_caught,
                failures=self._failures_count,
            )
        await self.exporter.flush(left_s)

    async def _write(self) -> bool:
        """Store one batch; return whether the database answered."""
        if not self._unsent:
            self._unsent = self.buffer.take(BATCH_MAX)
            self.exporter.add(self._unsent)
        self._count_dropped()
        if not self._unsent:
            return True
        try:
            await self._store(self._unsent)
        except UnavailableError as error:
            if not self._failures_count:
                _log.warning("log lines delayed", error=error.message)
            self._failures_count += 1
            return False
        if self._failures_count:
            _log.info("log lines stored again", after_failures=self._failures_count)
        self._failures_count = 0
        self._unsent = []
        return True

    async def _store(self, lines: list[LogLine]) -> None:
        """Store lines; halves of a batch that is refused, down to the lines that are the reason."""
        crash_point("before_lines")
        try:
            await self._port(logs.keep, lines, now=self._now())
        except UnavailableError:
            raise
        except CortexError as error:
            if len(lines) == 1:
                _log.warning(
                    "log line refused", job=str(lines[0].lease.job_id), error=error.message
                )
                self.buffer.give_up(lines, Why.REFUSED)
                self._unsent = [line for line in self._unsent if line is not lines[0]]
                return
            middle = len(lines) // 2
            await self._store(lines[:middle])
            await self._store(lines[middle:])
            return
        crash_point("after_lines")
        self._metrics.lines_stored(len(lines))

    def _count_dropped(self) -> None:
        for why, count in self.buffer.dropped_counts.items():
            if count > self._dropped[why]:
                self._metrics.lines_dropped(why, count - self._dropped[why])
                self._dropped[why] = count
