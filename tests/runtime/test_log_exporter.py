"""The export of log lines beside a collector that comes and goes."""

import gzip
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from cortex.domain.job import Lease
from cortex.domain.log_line import Level, LogLine
from cortex.domain.tracing.traceparent import TraceParent, attempt_name, span_id_of, step_name
from cortex.runtime.tracing import log_exporter
from cortex.runtime.tracing.environment import ExportSettings, Signal
from cortex.runtime.tracing.log_exporter import LogExporter
from tests.support.records.rows import new_id
from tests.support.servers.webhook_receiver import OK, Receiver, receiving, status

JOB = new_id()


def a_line(number: int, **fields: Any) -> LogLine:
    known: dict[str, Any] = {
        "lease": Lease(JOB, 2),
        "job_type": "digest",
        "traceparent": None,
        "number": number,
        "written_at": 0.0,
        "level": Level.INFO,
        "step": None,
        "source": None,
        "message": f"line {number}",
        "fields": None,
    }
    return LogLine(**{**known, **fields})


@pytest.fixture
async def collector() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def exporter(collector: Receiver) -> AsyncIterator[LogExporter]:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "shop",
    }
    settings = ExportSettings.of_environment(environ, warn=pytest.fail, signal=Signal.LOGS)
    assert settings is not None
    made = LogExporter(
        settings,
        resource={"cortex.pod": "eu-1"},
        version="1",
        unix_ms=lambda: 1_790_000_000_000,
        rng=random.Random(1),
    )
    yield made
    await made.flush(0)


def received(collector: Receiver) -> list[Any]:
    """All records that have arrived, in order."""
    records: list[Any] = []
    for posted in collector.posted:
        assert posted.path == "/v1/logs"
        request = ExportLogsServiceRequest.FromString(gzip.decompress(posted.body))
        (resource,) = request.resource_logs
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert names == {"service.name": "shop", "cortex.pod": "eu-1"}
        records += [each for scope in resource.scope_logs for each in scope.log_records]
    return records


async def test_a_line_arrives_with_the_span_that_wrote_it(
    exporter: LogExporter, collector: Receiver
) -> None:
    fields = '{"n": 1, "ok": true, "share": 0.5, "who": "ana", "list": [1], "none": null}'
    exporter.add([a_line(1, step="pay", level=Level.ERROR, source="shop", fields=fields)])
    assert await exporter.export()
    (record,) = received(collector)
    job = TraceParent.of_job(JOB, None)
    attempt = span_id_of(job.span_id, attempt_name(2))
    assert (record.trace_id, record.span_id) == (
        job.trace_id,
        span_id_of(attempt, step_name("pay")),
    )
    assert (record.body.string_value, record.severity_text) == ("line 1", "ERROR")
    found = {each.key: each.value for each in record.attributes}
    assert found["cortex.job.id"].string_value == str(JOB)
    assert (found["cortex.attempt"].int_value, found["cortex.step"].string_value) == (2, "pay")
    assert (found["n"].int_value, found["ok"].bool_value, found["list"].string_value) == (
        1,
        True,
        "[1]",
    )


async def test_long_lines_that_wait_are_bounded_by_their_text(
    exporter: LogExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_exporter, "CHARS_MAX", 20_000)
    for _ in range(2):  # what was sent makes room
        exporter.add([a_line(n, message="x" * 8_000, fields='{"n": 1}') for n in range(3)])
        assert await exporter.export()
    assert exporter.dropped_count == 2


async def test_a_batch_waits_for_its_collector_and_what_does_not_fit_is_counted(
    exporter: LogExporter, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_exporter, "BUFFER_MAX", 3)
    collector.answer = lambda _: status(503)
    exporter.add([a_line(n) for n in range(5)])
    with structlog.testing.capture_logs() as logs:
        assert not await exporter.export()
        assert not await exporter.export()
        collector.answer = lambda _: OK
        assert await exporter.export()
    assert [each["event"] for each in logs] == ["export failed", "export recovered"]
    assert logs[-1]["dropped"] == exporter.dropped_count == 2
    assert [each.body.string_value for each in received(collector)[-3:]] == [
        "line 0",
        "line 1",
        "line 2",
    ]
