"""Sends a pod's spans to a collector, in batches, beside its jobs.

Owns: the buffer of ended spans. Runs on trio, without a thread: it exists in every worker of a pod,
and ends with it. Reads, for jobs that go on after a kill or a failure, what their traces lack.

On failure: the collector's batch is sent again, while the buffer fills; then new spans are dropped
and counted. No job ever waits.
On stop: what is left is sent within `FLUSH_S`, after the pod's jobs are handed back.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import structlog
import trio

from cortex.domain.classification import describe
from cortex.domain.errors import CortexError
from cortex.domain.job import Claim, Lease
from cortex.domain.messages.message import Message
from cortex.domain.tracing.traceparent import SAMPLED, TraceParent, attempt_name, span_id_of
from cortex.durable.tracing import (
    BUFFER_MAX,
    END_SPANS,
    AttemptTrace,
    Delivery,
    Span,
    SpanBuffer,
    Value,
)
from cortex.postgres.bridge import Port
from cortex.runtime.tracing import encoding
from cortex.runtime.tracing.collector import Collector
from cortex.runtime.tracing.environment import ExportSettings
from cortex.store.background import traces
from cortex.store.background.traces import LostAttempt, Resumed

PAUSE_S: Final = 0.25
"""Between two exports, unless a batch is full."""
BATCH_MAX: Final = 2048
ENCODED_MAX: Final = 8192
"""Encoded spans in one export, and one attempt more: some MB, while collectors take about 20."""
AT_ONCE: Final = 256
"""Spans encoded before others of the loop get their turn: less than a millisecond."""
FLUSH_S: Final = 2.0
CLOCK_MOVED_NS: Final = 50_000_000
_log = structlog.get_logger(__name__)


class SpanExporter:
    """The actor. Implements `Tracing`."""

    name = "span exporter"

    def __init__(
        self,
        port: Port,
        settings: ExportSettings,
        *,
        resource: Mapping[str, str],
        version: str,
        unix_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._port = port
        self._sampler = settings.sampler
        self._unix_ms = unix_ms
        self._rng = rng
        self._buffer = SpanBuffer(self._finish)
        self._ready: deque[_Encoded] = deque()
        """Attempts that have ended."""
        self._ready_count = 0
        """How many spans in all of them."""
        self._encoder = encoding.Encoder(
            {"service.name": settings.service, **resource, **dict(settings.resource)},
            version=version,
        )
        self._collector = Collector(settings, what="spans", rng=rng)
        self._exporting = trio.Lock()
        self._offset_ns = self._offset()

    # --- Tracing

    def begin(self, claim: Claim) -> AttemptTrace | None:
        if claim.traceparent is None and self._sampler.takes_all:
            return AttemptTrace(claim, self._buffer, flags=SAMPLED)
        job = self._sampler.decided(TraceParent.of_job(claim.lease.job_id, claim.traceparent))
        return AttemptTrace(claim, self._buffer, flags=job.flags) if job.is_sampled else None

    def _finish(self, trace: AttemptTrace) -> bool:
        """Encode an attempt at its end: a long batch later would hold up the loop."""
        if is_resumed(trace.claim):
            return False
        steps = trace.taken()
        count = len(steps) + END_SPANS
        if self._ready_count >= BUFFER_MAX:
            self._buffer.dropped_count += count
            return True
        try:
            spans = encoding.steps(trace, steps, self._offset_ns)
            spans += encoding.end(trace, self._offset_ns)
        except Exception as error:  # noqa: BLE001 -- traces are no reason to end a job otherwise
            _log.error("spans not encoded", spans=count, error=describe(error))
        else:
            if not self._ready or self._ready[-1].count >= ENCODED_MAX:
                self._ready.append(_Encoded())
            self._ready[-1].add(spans, count)
            self._ready_count += count
        return True

    def handed_on(self, claim: Claim) -> str | None:
        job = TraceParent.of_job(claim.lease.job_id, claim.traceparent)
        return str(self._sampler.decided(job))

    def delivering(self, message: Message) -> Delivery:
        parent = TraceParent.parse(message.trace or "")
        if parent is None:
            return Delivery(None, None, None)
        parent = self._sampler.decided(parent)
        span = parent.child(self._rng.randbytes(8))
        return Delivery(span, parent, self._buffer if parent.is_sampled else None)

    # --- the actor

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            is_full = (
                self._collector.unsent_count
                or len(self._buffer.waiting) >= BATCH_MAX
                or self._ready_count >= ENCODED_MAX
            )
            usual_s = 0.0 if is_full else PAUSE_S * self._rng.uniform(0.8, 1.2)
            await trio.sleep(self._collector.pause_s() or usual_s)
            await self.export()

    async def flush(self, left_s: float) -> None:
        """Send what is left, within a bound; an unreachable collector gets one more chance."""
        with trio.move_on_after(min(FLUSH_S, left_s), shield=True):
            while self._has_more and await self.export():
                pass
        unsent_count = len(self._buffer.waiting) + len(self._buffer.recent) + self._ready_count
        unsent_count += self._collector.unsent_count
        if unsent_count:
            _log.warning("spans not exported", spans=unsent_count)
        await self._collector.aclose()

    @property
    def _has_more(self) -> bool:
        waits = self._buffer.waiting or self._buffer.recent or self._ready
        return bool(waits or self._collector.unsent_count)

    async def export(self) -> bool:
        """Send one batch; return whether the collector took it."""
        async with self._exporting:
            if not self._collector.unsent_count:
                batch = self._buffer.take(BATCH_MAX)
                if not (batch or self._ready):
                    return True
                await self._collector.take(*await self._encoded(batch))
            return await self._collector.send(dropped_count=self._buffer.dropped_count)

    async def _encoded(self, batch: Sequence[AttemptTrace | Span]) -> tuple[bytes, int]:
        """Return the body of a request, and how many spans it has."""
        self._offset_ns = self._steady(self._offset())
        earlier = await self._earlier([each for each in batch if isinstance(each, AttemptTrace)])
        encoded = self._ready.popleft() if self._ready else _Encoded()
        self._ready_count -= encoded.count
        since = encoded.count
        for each in batch:
            try:
                self._encode(each, earlier, encoded)
            except Exception as error:  # noqa: BLE001 -- traces are no reason to end a pod
                _log.error("spans not encoded", error=describe(error))
            if encoded.count - since >= AT_ONCE:
                since = encoded.count
                await trio.lowlevel.checkpoint()
        return self._encoder.request(encoded.spans), encoded.count

    def _encode(
        self, each: AttemptTrace | Span, earlier: Mapping[Lease, Resumed], encoded: "_Encoded"
    ) -> None:
        """Encode what is new of an attempt, or another span."""
        if isinstance(each, Span):
            self._buffer.room += 1
            encoded.add(encoding.span(each, self._offset_ns), 1)
            return
        steps, has_ended = each.taken(), each.end_taken()
        encoded.add(encoding.steps(each, steps, self._offset_ns), len(steps))
        if has_ended:
            self._end(each, earlier.get(each.claim.lease), encoded)

    def _end(self, trace: AttemptTrace, before: Resumed | None, encoded: "_Encoded") -> None:
        """Encode the end of an attempt, and the ends of those before that no pod could export."""
        links = () if before is None else _origin_of(before)
        encoded.add(encoding.end(trace, self._offset_ns, links), END_SPANS)
        for lost in () if before is None else before.lost:
            encoded.add(encoding.span(_lost(trace, lost), 0), 1)

    async def _earlier(self, traces_: Sequence[AttemptTrace]) -> dict[Lease, Resumed]:
        """Return what came before attempts that are not the first of a first job."""
        claims = [each.claim for each in traces_ if each.is_end_waiting]
        left = [claim.lease for claim in claims if is_resumed(claim)]
        earlier: dict[Lease, Resumed] = {}
        while left:
            leases = {lease.job_id: lease for lease in left}  # one attempt of each job at a time
            left = [lease for lease in left if leases[lease.job_id] is not lease]
            try:
                found = await self._port(traces.resumed, list(leases.values()))
            except CortexError as error:
                _log.debug("earlier attempts not traced", error=error.message)
                break
            earlier |= {leases[each.id]: each for each in found}
        return earlier

    def _offset(self) -> int:
        return self._unix_ms() * 1_000_000 - int(trio.current_time() * 1e9)

    def _steady(self, offset_ns: int) -> int:
        """Keep the offset, so that spans of one job stay in order, unless a clock was set."""
        return offset_ns if abs(offset_ns - self._offset_ns) > CLOCK_MOVED_NS else self._offset_ns


@attrs.define
class _Encoded:
    """The spans of one export."""

    spans: bytearray = attrs.field(factory=bytearray)
    count: int = 0

    def add(self, spans: bytes, count: int) -> None:
        self.spans += spans
        self.count += count


def is_resumed(claim: Claim) -> bool:
    """Return whether something came before: an attempt, or the job that it continues."""
    return claim.lease.attempt > 1 or claim.lineage_id is not None


def _origin_of(before: Resumed) -> tuple[TraceParent, ...]:
    if before.origin_id is None:
        return ()
    return (TraceParent.of_job(before.origin_id, before.origin_traceparent),)


def _lost(trace: AttemptTrace, lost: LostAttempt) -> Span:
    """Return the span of an attempt whose pod could not export it."""
    attributes: dict[str, Value] = {
        encoding.JOB: str(trace.claim.lease.job_id),
        "cortex.job.type": trace.claim.type,
        "cortex.attempt": lost.attempt,
        "cortex.outcome": lost.outcome,
    }
    if lost.pod is not None:
        attributes["cortex.pod"] = lost.pod
    ended = lost.ended_at.timestamp()
    return Span(
        parent=trace.job,
        id=span_id_of(trace.job.span_id, attempt_name(lost.attempt)),
        name=attempt_name(lost.attempt),
        began=ended if lost.began_at is None else min(ended, lost.began_at.timestamp()),
        ended=ended,
        is_unix=True,
        attributes=attributes,
        error=lost.outcome.replace("_", " "),
    )
