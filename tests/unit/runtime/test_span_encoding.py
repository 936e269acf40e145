"""Encoded spans, read by the official messages of OTLP."""

from typing import Any

import attrs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message

from cortex.domain.job import Claim, Finish, JobStatus, Lease, Release, StepDone, StepKind
from cortex.domain.tracing.traceparent import TraceParent
from cortex.durable.tally import Tally
from cortex.durable.tracing import AttemptTrace, Span, SpanBuffer, Value
from cortex.runtime.tracing import encoding
from tests.support.records.rows import new_id

OFFSET_NS = 10**18


def a_trace(**fields: Any) -> AttemptTrace:
    claim = Claim(
        *(Lease(new_id(), 2), "digest", "{}", None, None, 1, 3, False, False, False, 60.0, 60)
    )
    return AttemptTrace(attrs.evolve(claim, **fields), SpanBuffer(), flags=1)


def decoded(*encoded: bytes) -> list[Message]:
    body = encoding.Encoder({"service.name": "cortex"}, version="1").request(b"".join(encoded))
    request = ExportTraceServiceRequest.FromString(body)
    (by_resource,) = request.resource_spans
    assert by_resource.resource.attributes[0].value.string_value == "cortex"
    (by_scope,) = by_resource.scope_spans
    assert by_scope.scope.name == "cortex"
    return list(by_scope.spans)


def attributes(span: Message) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


def test_steps_of_any_name_are_parts_of_their_attempt() -> None:
    trace = a_trace()
    keys = ["fetch", "é" * 250, "fetch#2", "f" * 100]
    records = [(StepKind.STEP, key, float(n), 0.5, None) for n, key in enumerate(keys)]
    inner = (StepKind.TOOL, "inner", 1.25, 0.25, "fetch")
    spans = decoded(encoding.steps(trace, [*records, inner], OFFSET_NS))
    assert [span.name for span in spans] == [*keys, "inner"]
    assert {span.trace_id for span in spans} == {trace.claim.lease.job_id.bytes}
    assert [span.span_id for span in spans] == [
        trace.step_span(span.name).span_id for span in spans
    ]
    parents = [trace.span.span_id] * len(keys) + [trace.step_span("fetch").span_id]
    assert [span.parent_span_id for span in spans] == parents
    assert spans[4].start_time_unix_nano == OFFSET_NS + 1_250_000_000
    assert spans[4].end_time_unix_nano == OFFSET_NS + 1_500_000_000
    assert attributes(spans[4]) == {"cortex.step.kind": "tool"}


def test_the_end_of_a_job_is_the_end_of_its_attempt_and_its_own() -> None:
    trace = a_trace(due_for_s=2.0)
    error = Finish(lease=trace.claim.lease, status=JobStatus.FAILED, error="no", code="rejected")
    trace.ended(error, 5.0, 6.0)
    origin = TraceParent.of_job(new_id(), None)
    attempt, job = decoded(encoding.end(trace, OFFSET_NS, [origin]))
    assert (attempt.name, job.name) == ("attempt 2", "job digest")
    assert (attempt.parent_span_id, job.parent_span_id) == (job.span_id, b"")
    assert job.start_time_unix_nano == OFFSET_NS + 3_000_000_000
    assert attempt.start_time_unix_nano == OFFSET_NS + 5_000_000_000
    for span in (attempt, job):
        assert (span.status.code, span.status.message) == (span.status.STATUS_CODE_ERROR, "no")
        assert (
            attributes(span).items()
            >= {
                "cortex.job.id": str(trace.claim.lease.job_id),
                "cortex.outcome": "failed",
                "error.type": "rejected",
            }.items()
        )
    assert [(each.trace_id, each.span_id) for each in job.links] == [
        (origin.trace_id, origin.span_id)
    ]
    assert job.kind == Message.SpanKind.SPAN_KIND_CONSUMER


def test_a_job_in_the_submitters_trace_is_part_of_its_span() -> None:
    given = TraceParent(bytes(range(16)), bytes(range(1, 9)))
    trace = a_trace(traceparent=str(given))
    trace.ended(Finish(lease=trace.claim.lease, status=JobStatus.COMPLETED, result="1"), 5.0, 6.0)
    attempt, job = decoded(encoding.end(trace, OFFSET_NS))
    assert {attempt.trace_id, job.trace_id} == {given.trace_id}
    assert job.parent_span_id == given.span_id


def test_an_attempt_that_does_not_end_its_job_ends_alone() -> None:
    trace = a_trace()
    trace.ended(Release(lease=trace.claim.lease, outcome="handed_back"), 5.0, 6.0)
    (attempt,) = decoded(encoding.end(trace, OFFSET_NS))
    assert attributes(attempt)["cortex.outcome"] == "handed_back"
    trace.ended(None, 5.0, 6.0)
    (attempt,) = decoded(encoding.end(trace, OFFSET_NS))
    assert attributes(attempt)["cortex.outcome"] == "lease_lost"


def test_values_of_all_kinds() -> None:
    given: dict[str, Value] = {
        "text": "é",
        "count": 3,
        "share": 0.5,
        "flag": True,
        "list": ("a", "b"),
    }
    parent = TraceParent.of_job(new_id(), None)
    record = Span(parent=parent, id=b"12345678", name="x", began=1, ended=2, attributes=given)
    (span,) = decoded(encoding.span(record, 0))
    values = {each.key: each.value for each in span.attributes}
    assert values["text"].string_value == "é"
    assert values["count"].int_value == 3
    assert values["share"].double_value == 0.5
    assert values["flag"].bool_value is True
    assert [each.string_value for each in values["list"].array_value.values] == ["a", "b"]


def test_a_full_buffer_drops_and_counts() -> None:
    trace = a_trace()
    buffer = SpanBuffer()
    buffer.room = 1
    span = Span(parent=trace.job, id=b"12345678", name="x", began=1, ended=2)
    buffer.add(span)
    buffer.add(span)
    assert (len(buffer.waiting), buffer.dropped_count) == (1, 1)


def test_a_running_attempt_is_passed_over_once_unless_it_ends() -> None:
    buffer = SpanBuffer()
    lease = Lease(new_id(), 2)
    trace = AttemptTrace(attrs.evolve(a_trace().claim, lease=lease), buffer, flags=1)
    done = StepDone(
        lease=lease,
        kind=StepKind.STEP,
        key="fetch",
        digest=b"",
        duration_s=0.1,
        output="1",
        ended_at=0.0,
        tally=Tally(()),
    )
    trace.stepped(done, 1.0)
    assert [buffer.take(10), buffer.take(10), buffer.take(10)] == [[], [trace], []]
    trace.taken()
    trace.stepped(done, 2.0)
    trace.ended(Release(lease=lease, outcome="handed_back"), 1.0, 3.0)
    assert [buffer.take(10), buffer.take(10)] == [[trace], []]
