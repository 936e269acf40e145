"""Spans as OTLP: messages of the official `opentelemetry-proto`, put together from encoded parts.

A message for each span would cost a step more than all tracing may. What repeats (name and
attributes of steps, of attempts of one type) is encoded once, and a span is that plus its ids and
its two times, whose encoding has a fixed length: concatenated parts of a protobuf message are the
message.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as pb

from cortex.domain.job import Finish, StepKind
from cortex.domain.tracing.traceparent import TraceParent, number_of, span_id_of, step_name
from cortex.durable.tracing import (
    AttemptTrace,
    Span,
    SpanKind,
    StepSpan,
    Value,
    outcome_of,
)

CACHED_MAX: Final = 4096
SEVEN_BITS: Final = 0x7F
JOB: Final = "cortex.job.id"
_STEP: Final = "29sQBQ2sQ"
"""What the spans of steps have in common: trace and parent, begin, end, own id."""
_TIMES: Final = struct.Struct("<BQBQ")
_TRACE_ID: Final = b"\x0a\x10"
_SPAN_ID: Final = b"\x12\x08"
_PARENT_ID: Final = b"\x22\x08"
_BEGAN: Final = 0x39
_BEGAN_TAG: Final = bytes((_BEGAN,))
_ENDED: Final = 0x41
_LENGTH_MIN: Final = 46
"""Of a span: its trace, its id and its times."""
_SPAN: Final = b"\x12"
_FRAME: Final = b"\x0a"
"""Tags of the fields of a span, of spans in their scope, and of the messages around them."""


class Encoder:
    """Encodes the spans of one pod."""

    def __init__(self, resource: Mapping[str, str], *, version: str) -> None:
        self._resource = _framed(_FRAME, Resource(attributes=_pairs(resource)).SerializeToString())
        scope = InstrumentationScope(name="cortex", version=version)
        self._scope = _framed(_FRAME, scope.SerializeToString())

    def request(self, spans: bytes | bytearray) -> bytes:
        """Return the body of one export: a megabyte, copied once."""
        inner = b"".join((_SPAN, _size(len(self._scope) + len(spans)), self._scope))
        length = len(self._resource) + len(inner) + len(spans)
        return b"".join((_FRAME, _size(length), self._resource, inner, spans))


def steps(trace: AttemptTrace, records: Sequence[StepSpan], offset_ns: int) -> bytes:
    """Encode recorded steps. `offset_ns`: from trio's clock to the time since 1970."""
    span = trace.span
    attempt = int.from_bytes(span.span_id, "little")
    before = b"".join((_TRACE_ID, span.trace_id, _PARENT_ID))
    within = b"".join((before, span.span_id, _BEGAN_TAG))
    encoded: list[bytes] = []
    for kind, key, began, seconds, parent_key in records:
        known = _STEPS.get(key)
        if known is None or known.kind is not kind:
            known = _of_step(kind, key)
        began_ns = int(began * 1e9) + offset_ns
        head = within
        if parent_key is not None:
            around = span_id_of(span.span_id, step_name(parent_key))
            head = b"".join((before, around, _BEGAN_TAG))
        encoded.append(
            known.pack(
                *(known.frame, head, began_ns, _ENDED, began_ns + int(seconds * 1e9)),
                *(_SPAN_ID, attempt ^ known.number, known.rest),
            )
        )
    return b"".join(encoded)


def span(record: Span, offset_ns: int, links: Sequence[TraceParent] = ()) -> bytes:
    """Encode any other span."""
    if record.is_unix:
        offset_ns = 0
    rest = pb.Span(
        name=record.name,
        kind=_kind(record.kind),
        attributes=_pairs(record.attributes),
        links=_links(links),
        status=_status(record.error),
    )
    return _put_together(
        record.parent,
        record.id,
        (int(record.began * 1e9) + offset_ns, int(record.ended * 1e9) + offset_ns),
        rest.SerializeToString(),
    )


def end(trace: AttemptTrace, offset_ns: int, links: Sequence[TraceParent] = ()) -> bytes:
    """Encode an attempt that has ended; if its job has ended with it, the job, too."""
    claim, job, ending = trace.claim, trace.job, trace.ending
    began_ns = int(trace.began * 1e9) + offset_ns
    ended_ns = int((trace.ended_at or trace.began) * 1e9) + offset_ns
    agent = None if claim.agent_id is None else (str(claim.agent_id), claim.agent_version)
    waiting_on = getattr(ending, "waiting_on", None)
    of_attempt, of_job = _of_end(
        (claim.lease.attempt, waiting_on), claim.type, claim.tenant, agent, outcome_of(ending)
    )
    rest = b"".join((_BEFORE, str(claim.lease.job_id).encode(), _AFTER))
    if getattr(ending, "error", None) is not None:
        rest += _failure(ending)
    encoded = _put_together(job, trace.span.span_id, (began_ns, ended_ns), of_attempt, rest)
    if not isinstance(ending, Finish):
        return encoded
    due_ns = began_ns - int(claim.due_for_s * 1e9)
    parent = None if claim.traceparent is None else TraceParent.parse(claim.traceparent)
    if links:
        rest += pb.Span(links=_links(links)).SerializeToString()
    return encoded + _put_together(parent or job, job.span_id, (due_ns, ended_ns), of_job, rest)


def _put_together(
    parent: TraceParent, own_id: bytes, times: tuple[int, int], terms: bytes, rest: bytes = b""
) -> bytes:
    """Return a span; one that is its own parent has none."""
    around = b"" if parent.span_id == own_id else _PARENT_ID + parent.span_id
    return b"".join(
        (
            *(_SPAN, _size(_LENGTH_MIN + len(around) + len(terms) + len(rest))),
            *(_TRACE_ID, parent.trace_id, _SPAN_ID, own_id, around),
            *(_TIMES.pack(_BEGAN, times[0], _ENDED, times[1]), terms, rest),
        )
    )


@attrs.frozen
class _StepTerms:
    """What the spans of steps with one key have in common."""

    kind: StepKind
    number: int
    """Of the key, for its id."""
    frame: bytes
    """Tag and length."""
    rest: bytes
    """Name and attributes."""
    pack: Callable[..., bytes]
    """Puts a span together."""


_STEPS: Final[dict[str, _StepTerms]] = {}
"""By key: the hash of a kind takes longer than all else of the look-up."""


def _of_step(kind: StepKind, key: str) -> _StepTerms:
    rest = _named(key, SpanKind.INTERNAL, {"cortex.step.kind": kind.value})
    frame = _SPAN + _size(struct.calcsize(f"<{_STEP}") + len(rest))
    if len(_STEPS) >= CACHED_MAX:
        _STEPS.clear()
    shape = struct.Struct(f"<{len(frame)}s{_STEP}{len(rest)}s")
    terms = _StepTerms(kind, number_of(step_name(key)), frame, rest, shape.pack)
    _STEPS[key] = terms
    return terms


@lru_cache(CACHED_MAX)
def _of_end(
    attempt: tuple[int, str | None],
    job_type: str,
    tenant: str,
    agent: tuple[str, int | None] | None,
    outcome: str,
) -> tuple[bytes, bytes]:
    """Return name and attributes of an attempt, and those of its job.

    `attempt`: its number and what it waits for. `agent`: id and version.
    """
    number, waiting_on = attempt
    attributes: dict[str, Value] = {
        "cortex.job.type": job_type,
        "cortex.tenant": tenant,
        "cortex.outcome": outcome,
    }
    if agent is not None:
        attributes |= {"gen_ai.agent.id": agent[0], "gen_ai.agent.version": str(agent[1])}
    more: dict[str, Value] = {"cortex.attempt": number}
    if waiting_on is not None:
        more["cortex.waiting_on"] = waiting_on
    return (
        _named(f"attempt {number}", SpanKind.INTERNAL, attributes | more),
        _named(f"job {job_type}", SpanKind.CONSUMER, attributes),
    )


def _named(name: str, kind: SpanKind, attributes: Mapping[str, Value]) -> bytes:
    body: bytes = pb.Span(
        name=name, kind=_kind(kind), attributes=_pairs(attributes)
    ).SerializeToString()
    return body


_MARK: Final = "0" * 36
_ABOUT: Final = pb.Span(
    attributes=[KeyValue(key=JOB, value=AnyValue(string_value=_MARK))]
).SerializeToString()
_BEFORE, _, _AFTER = _ABOUT.partition(_MARK.encode())


def _failure(ending: Any) -> bytes:
    attributes = {} if ending.code is None else {"error.type": ending.code}
    body: bytes = pb.Span(
        status=_status(ending.error), attributes=_pairs(attributes)
    ).SerializeToString()
    return body


def _links(links: Sequence[TraceParent]) -> list[Any]:
    return [pb.Span.Link(trace_id=each.trace_id, span_id=each.span_id) for each in links]


def _kind(kind: SpanKind) -> Any:
    return int(kind)


def _status(error: str | None) -> Any:
    if error is None:
        return None
    return pb.Status(code=pb.Status.STATUS_CODE_ERROR, message=error)


def _pairs(attributes: Mapping[str, Value] | Mapping[str, str]) -> list[Any]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> Any:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case tuple():
            return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))
        case str():
            return AnyValue(string_value=value)


def _framed(tag: bytes, body: bytes) -> bytes:
    """Return a field whose length precedes it."""
    return b"".join((tag, _size(len(body)), body))


def _size(length: int) -> bytes:
    """Encode a length: seven bits in a byte."""
    return _SIZES[length] if length < len(_SIZES) else _longer(length)


def _longer(length: int) -> bytes:
    sizes = bytearray()
    while length > SEVEN_BITS:
        sizes.append(length & SEVEN_BITS | 0x80)
        length >>= 7
    sizes.append(length)
    return bytes(sizes)


_SIZES: Final = tuple(_longer(length) for length in range(1024))
