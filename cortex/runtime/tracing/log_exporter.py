"""Sends the log lines of a pod's jobs to a collector, in batches, beside its jobs.

Owns: the lines that wait.

On failure: the collector's batch is sent again, while the buffer fills; then new lines are dropped
and counted. The lines are in the database all the same, and no job ever waits.
On stop: what is left is sent within `FLUSH_S`.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
import trio

from cortex.domain.log_line import LogLine, size_of
from cortex.runtime.tracing import log_encoding
from cortex.runtime.tracing.collector import Collector
from cortex.runtime.tracing.environment import ExportSettings

BUFFER_MAX: Final = 20_000
CHARS_MAX: Final = 32 * 1024 * 1024
"""Of lines that wait, as in the buffer of the pod: a collector may be away for long."""
BATCH_MAX: Final = 500
"""Lines in one export: a few milliseconds of the loop to encode."""
FLUSH_S: Final = 2.0
_log = structlog.get_logger(__name__)


class LogExporter:
    """The actor."""

    name = "log exporter"

    def __init__(
        self,
        settings: ExportSettings,
        *,
        resource: Mapping[str, str],
        version: str,
        unix_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._resource = {
            "service.name": settings.service,
            **resource,
            **dict(settings.resource),
        }
        self._version = version
        self._unix_ms = unix_ms
        self._collector = Collector(settings, what="log lines", rng=rng)
        self._waiting: deque[LogLine] = deque()
        self._chars = 0
        self._exporting = trio.Lock()
        self._has_any = trio.Event()
        self.dropped_count = 0
        """Lines ever that did not fit the buffer."""

    def add(self, lines: Sequence[LogLine]) -> None:
        """Export lines, as far as they fit the buffer."""
        for line in lines:
            size = size_of(line)
            if len(self._waiting) >= BUFFER_MAX or self._chars + size > CHARS_MAX:
                self.dropped_count += 1
            else:
                self._chars += size
                self._waiting.append(line)
        self._has_any.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Export lines until cancelled. Idle while there are none."""
        task_status.started()
        while True:
            if not self._has_more:
                self._has_any = trio.Event()
                await self._has_any.wait()
            await trio.sleep(self._collector.pause_s())
            await self.export()

    async def flush(self, left_s: float) -> None:
        """Send what is left, within a bound."""
        with trio.move_on_after(min(FLUSH_S, left_s), shield=True):
            while self._has_more and await self.export():
                pass
        unsent_count = len(self._waiting) + self._collector.unsent_count
        if lost_count := unsent_count + self.dropped_count + self._collector.refused_count:
            _log.warning("log lines not exported", lines=lost_count)
        await self._collector.aclose()

    @property
    def _has_more(self) -> bool:
        return bool(self._waiting or self._collector.unsent_count)

    async def export(self) -> bool:
        """Send one batch; return whether the collector took it."""
        async with self._exporting:
            if not self._collector.unsent_count:
                count = min(BATCH_MAX, len(self._waiting))
                if not count:
                    return True
                batch = [self._waiting.popleft() for _ in range(count)]
                self._chars -= sum(map(size_of, batch))
                offset_ns = self._unix_ms() * 1_000_000 - int(trio.current_time() * 1e9)
                body = log_encoding.request(
                    batch, offset_ns, resource=self._resource, version=self._version
                )
                await self._collector.take(body, count)
            return await self._collector.send(dropped_count=self.dropped_count)
