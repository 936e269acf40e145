"""The export of spans beside a collector that comes and goes."""

import gzip
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cortex.domain.job import Claim, Finish, JobStatus, Lease, StepDone, StepKind
from cortex.domain.tracing.traceparent import TraceParent
from cortex.durable import tracing
from cortex.durable.tally import Tally
from cortex.durable.tracing import AttemptTrace
from cortex.postgres.bridge import Port
from cortex.runtime.tracing import exporter as exporting
from cortex.runtime.tracing.environment import ExportSettings
from cortex.runtime.tracing.exporter import SpanExporter
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql
from tests.support.servers.webhook_receiver import OK, Posted, Receiver, receiving, status


@pytest.fixture
async def collector() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def exporter(port: Port, collector: Receiver) -> AsyncIterator[SpanExporter]:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=k",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000",
    }
    settings = ExportSettings.of_environment(environ, warn=pytest.fail)
    assert settings is not None
    made = SpanExporter(
        port,
        settings,
        resource={},
        version="1",
        unix_ms=lambda: 1_790_000_000_000,
        rng=random.Random(1),
    )
    yield made
    await made.flush(0)


def begin_attempt(
    exporter: SpanExporter, lease: Lease, *, job_type: str = "digest", **fields: Any
) -> AttemptTrace:
    claim = Claim(
        *(lease, job_type, "{}", None, None, 1, 3, False, False, False, 60.0, 60), **fields
    )
    trace = exporter.begin(claim)
    assert trace is not None
    return trace


def end_attempt(
    exporter: SpanExporter, lease: Lease, *, job_type: str = "digest", **fields: Any
) -> None:
    trace = begin_attempt(exporter, lease, job_type=job_type, **fields)
    trace.ended(Finish(lease=lease, status=JobStatus.COMPLETED, result="1"), 1.0, 2.0)


def step(lease: Lease, key: str) -> StepDone:
    return StepDone(
        lease=lease,
        kind=StepKind.STEP,
        key=key,
        digest=b"",
        duration_s=0.25,
        output="1",
        ended_at=0.0,
        tally=Tally(()),
    )


def spans(posted: Posted) -> list[Any]:
    request = ExportTraceServiceRequest.FromString(gzip.decompress(posted.body))
    return list(request.resource_spans[0].scope_spans[0].spans)


async def test_a_batch_waits_for_its_collector(exporter: SpanExporter, collector: Receiver) -> None:
    answers = [status(503), status(429), OK]
    collector.answer = lambda _: answers.pop(0)
    lease = Lease(new_id(), 1)
    end_attempt(exporter, lease)
    with structlog.testing.capture_logs() as logs:
        assert [await exporter.export() for _ in range(4)] == [False, False, True, True]
    assert [each["event"] for each in logs] == ["export failed", "export recovered"]
    assert len(collector.posted) == 3
    assert {each.body for each in collector.posted} == {collector.posted[0].body}
    assert collector.posted[0].headers["api-key"] == "k"
    assert [each.name for each in spans(collector.posted[0])] == ["attempt 1", "job digest"]


async def test_a_refused_batch_is_not_sent_again(
    exporter: SpanExporter, collector: Receiver
) -> None:
    collector.answer = lambda _: status(400, body="no")
    end_attempt(exporter, Lease(new_id(), 1))
    with structlog.testing.capture_logs() as logs:
        await exporter.export()
        await exporter.flush(10)
    assert [each["event"] for each in logs] == ["batch refused by the collector"]
    assert len(collector.posted) == 1


async def test_the_end_of_a_pod_does_not_wait_long_for_a_collector(
    exporter: SpanExporter, collector: Receiver
) -> None:
    collector.answer = lambda _: None
    end_attempt(exporter, Lease(new_id(), 1))
    began = trio.current_time()
    with structlog.testing.capture_logs() as logs:
        await exporter.flush(0.2)
    assert trio.current_time() - began < exporter._collector._settings.timeout_s, (
        "its request may take longer"
    )
    assert [each["event"] for each in logs] == ["spans not exported"]


async def test_a_span_that_cannot_be_encoded_is_no_trouble_for_its_job(
    exporter: SpanExporter, collector: Receiver
) -> None:
    with structlog.testing.capture_logs() as logs:
        end_attempt(exporter, Lease(new_id(), 1), job_type="\ud800")
        end_attempt(exporter, Lease(new_id(), 1))
        assert await exporter.export()
    assert [each["event"] for each in logs] == ["spans not encoded"]
    assert len(spans(collector.posted[0])) == 2


async def test_continuing_attempt_exports_the_earlier_attempts(
    exporter: SpanExporter, collector: Receiver, database: str
) -> None:
    (row,) = sql(
        database,
        """
        WITH ids AS (SELECT cortex.submit_job('work') AS origin, cortex.submit_job('work') AS id)
        SELECT origin, id FROM ids
        """,
    )
    sql(
        database,
        "UPDATE cortex.job_record SET origin_id = $1, lineage_id = $1 WHERE id = $2",
        row["origin"],
        row["id"],
    )
    sql(
        database,
        """
        INSERT INTO cortex.job_attempt (job_id, attempt, outcome)
        SELECT $1, a.n, a.outcome FROM (VALUES
            (1, 'pod_died'), (2, 'failed'), (3, 'pod_died'), (4, 'lease_expired'),
            (5, 'failed')) a(n, outcome)
        """,
        row["id"],
    )
    end_attempt(exporter, Lease(row["id"], 5), lineage_id=row["origin"])
    end_attempt(exporter, Lease(row["id"], 6), lineage_id=row["origin"])
    assert await exporter.export()
    found = {each.name: each for each in spans(collector.posted[0])}
    # The first one was exported by the second, which ended in its pod.
    assert sorted(found) == ["attempt 3", "attempt 4", "attempt 5", "attempt 6", "job digest"]
    origin = TraceParent.of_job(row["origin"], None)
    assert [(each.trace_id, each.span_id) for each in found["job digest"].links] == [
        (origin.trace_id, origin.span_id)
    ]
    assert {each.parent_span_id for name, each in found.items() if name != "job digest"} == {
        found["job digest"].span_id
    }


async def test_a_dead_collector_costs_a_bounded_memory_and_no_huge_request(
    exporter: SpanExporter, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.answer = lambda _: status(503)
    end_attempt(exporter, Lease(new_id(), 1))
    assert not await exporter.export()
    monkeypatch.setattr(exporting, "BUFFER_MAX", 60)
    monkeypatch.setattr(exporting, "ENCODED_MAX", 20)
    buffer = exporter._buffer
    buffer.room = 30
    for attempt in (1, 2):
        for _ in range(100):
            lease = Lease(new_id(), attempt)
            trace = begin_attempt(exporter, lease)
            trace.stepped(step(lease, "a"), 1.0)
            trace.ended(None, 1.0, 2.0)
    kept = len(buffer.waiting)
    assert kept == 10, "what ended is encoded, or waits as far as there is room"
    assert buffer.room == 0
    assert buffer.dropped_count == 200 * (1 + tracing.END_SPANS) - exporter._ready_count - 30
    collector.answer = lambda _: OK
    await exporter.flush(10)
    sizes = [len(spans(each)) for each in collector.posted[2:]]
    assert sum(sizes) == 2 * (20 + kept), "attempts and their steps; no job has ended"
    assert max(sizes) <= 20 + 2 * kept
    assert (buffer.room, exporter._ready_count) == (30, 0), "all of it is free again"


async def test_one_span_that_cannot_be_encoded_takes_no_other_with_it(
    exporter: SpanExporter, collector: Receiver
) -> None:
    trace = begin_attempt(exporter, Lease(new_id(), 1))
    room = exporter._buffer.room
    for name in ("a", "\ud800", "b"):
        trace.called("key", name, 1.0, {})
    with structlog.testing.capture_logs() as logs:
        assert await exporter.export()
    assert [each["event"] for each in logs] == ["spans not encoded"]
    assert [each.name for each in spans(collector.posted[0])] == ["a", "b"]
    assert exporter._buffer.room == room


async def test_an_attempt_that_ends_while_its_steps_are_exported_ends_once(
    exporter: SpanExporter, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(new_id(), 2)
    trace = begin_attempt(exporter, lease)
    room = exporter._buffer.room
    trace.stepped(step(lease, "a"), 1.0)

    async def earlier(_: object) -> dict[Any, Any]:
        if not trace.ended_at:
            trace.ended(None, 1.0, 2.0)
        return {}

    monkeypatch.setattr(exporter, "_earlier", earlier)
    await exporter.flush(10)
    names = [each.name for posted in collector.posted for each in spans(posted)]
    assert names == ["a", "attempt 2"]
    assert exporter._buffer.room == room
