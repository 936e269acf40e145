"""Log lines as OTLP: each names its job, and the span of the step or attempt that wrote it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from cortex.domain.log_line import Level, LogLine
from cortex.domain.tracing.traceparent import TraceParent, attempt_name, span_id_of, step_name
from cortex.runtime.tracing.encoding import JOB

SEVERITY: Final = {
    Level.DEBUG: pb.SEVERITY_NUMBER_DEBUG,
    Level.INFO: pb.SEVERITY_NUMBER_INFO,
    Level.WARNING: pb.SEVERITY_NUMBER_WARN,
    Level.ERROR: pb.SEVERITY_NUMBER_ERROR,
    Level.CRITICAL: pb.SEVERITY_NUMBER_FATAL,
}


def request(
    lines: Sequence[LogLine], offset_ns: int, *, resource: Mapping[str, str], version: str
) -> bytes:
    """Return the body of one export. `offset_ns`: from the lines' clock to the time since 1970."""
    scope = pb.ScopeLogs(
        scope=InstrumentationScope(name="cortex", version=version),
        log_records=[_record(line, offset_ns) for line in lines],
    )
    attributes = [_pair(name, text) for name, text in resource.items()]
    data = pb.LogsData(
        resource_logs=[
            pb.ResourceLogs(resource=Resource(attributes=attributes), scope_logs=[scope])
        ]
    )
    body: bytes = data.SerializeToString()
    return body


def _record(line: LogLine, offset_ns: int) -> Any:
    at_ns = int(line.written_at * 1e9) + offset_ns
    job = _job(line.lease.job_id, line.traceparent)
    span_id = span_id_of(job.span_id, attempt_name(line.lease.attempt))
    if line.step is not None:
        span_id = span_id_of(span_id, step_name(line.step))
    return pb.LogRecord(
        time_unix_nano=at_ns,
        observed_time_unix_nano=at_ns,
        severity_number=SEVERITY[line.level],
        severity_text=line.level.name,
        body=AnyValue(string_value=line.message),
        attributes=_attributes(line),
        trace_id=job.trace_id,
        span_id=span_id,
        flags=job.flags,
    )


@lru_cache(256)
def _job(job_id: UUID, traceparent: str | None) -> TraceParent:
    return TraceParent.of_job(job_id, traceparent)


def _attributes(line: LogLine) -> list[Any]:
    pairs = [
        _pair(JOB, str(line.lease.job_id)),
        _pair("cortex.job.type", line.job_type),
        _pair("cortex.attempt", line.lease.attempt),
    ]
    more = {"cortex.step": line.step, "cortex.source": line.source, "cortex.dropped": line.dropped}
    pairs += [_pair(name, value) for name, value in more.items() if value is not None]
    for name, value in (orjson.loads(line.fields) if line.fields else {}).items():
        if value is not None:
            pairs.append(_pair(name, value))
    return pairs


def _pair(name: str, value: Any) -> Any:
    match value:
        case bool():
            given = AnyValue(bool_value=value)
        case int():
            given = AnyValue(int_value=value)
        case float():
            given = AnyValue(double_value=value)
        case str():
            given = AnyValue(string_value=value)
        case _:
            given = AnyValue(string_value=orjson.dumps(value).decode())
    return KeyValue(key=name, value=given)
