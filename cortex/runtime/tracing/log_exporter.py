"""Sends the log lines of a pod's jobs to a collector, in batches, beside its jobs.

Owns: the lines that wait, and the connection to the collector.

On failure: a batch is sent again after a pause, while the buffer fills; then new lines are dropped
and counted. An outage is logged once, at its beginning and its end. The lines are in the database
all the same, and no job ever waits.
On stop: what is left is sent within `FLUSH_S`.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
import trio

from cortex.domain.backoff import Backoff
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
BACKOFF: Final = Backoff(base_s=1.0, cap_s=30.0)
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
        self._rng = rng
        self._collector = Collector(settings)
        self._waiting: deque[LogLine] = deque()
        self._chars = 0
        self._unsent: tuple[bytes, int] | None = None
        self._exporting = trio.Lock()
        self._has_any = trio.Event()
        self._failures_count = 0
        self.dropped_count = 0
        """Lines ever that did not fit the buffer, or that the collector refused."""

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
            if self._failures_count:
                pause_s = BACKOFF.pause_s(self._failures_count, rng=self._rng, least=0.5)
                await trio.sleep(pause_s)
            await self.export()

    async def flush(self, left_s: float) -> None:
        """Send what is left, within a bound."""
        with trio.move_on_after(min(FLUSH_S, left_s), shield=True):
            while self._has_more and await self.export():
                pass
        unsent_count = len(self._waiting) + (0 if self._unsent is None else self._unsent[1])
        if unsent_count or self.dropped_count:
            _log.warning("log lines not exported", lines=unsent_count + self.dropped_count)
        await self._collector.aclose()

    @property
    def _has_more(self) -> bool:
        return bool(self._waiting) or self._unsent is not None

    async def export(self) -> bool:
        """Send one batch; return whether the collector took it."""
        async with self._exporting:
            if self._unsent is None:
                count = min(BATCH_MAX, len(self._waiting))
                if not count:
                    return True
                batch = [self._waiting.popleft() for _ in range(count)]
                self._chars -= sum(map(size_of, batch))
                offset_ns = self._unix_ms() * 1_000_000 - int(trio.current_time() * 1e9)
                body = log_encoding.request(
                    batch, offset_ns, resource=self._resource, version=self._version
                )
                self._unsent = await self._collector.packed(body), count
            return await self._send(*self._unsent)

    async def _send(self, body: bytes, count: int) -> bool:
        failure = await self._collector.post(body)
        if failure is not None and failure.cls.is_transient:
            if not self._failures_count:
                _log.warning("log export failed", error=failure.message)
            self._failures_count += 1
            return False
        self._unsent = None
        if failure is not None:
            _log.warning("log lines refused by the collector", lines=count, error=failure.message)
            self.dropped_count += count
            return False
        if self._failures_count:
            self._failures_count = 0
            _log.info("log export recovered", dropped=self.dropped_count)
        return True
