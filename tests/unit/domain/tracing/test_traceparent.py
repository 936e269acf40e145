"""The header `traceparent`, and the spans of a job."""

import pytest

from cortex.domain.errors import UsageError
from cortex.domain.tracing.traceparent import TraceParent, span_id_of
from tests.support.records.rows import new_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text, is_sampled",
    [(GIVEN, True), (f"00-{TRACE}-{SPAN}-00", False), (f"cc-{TRACE}-{SPAN}-03-what-is-new", True)],
)
def test_a_header_of_any_version_is_understood(text: str, is_sampled: bool) -> None:
    parent = TraceParent.parse(text)
    assert parent is not None
    assert (parent.trace_id.hex(), parent.span_id.hex()) == (TRACE, SPAN)
    assert parent.is_sampled is is_sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        GIVEN.upper(),
        f"{GIVEN}-more",
        f" {GIVEN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01x",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_a_broken_header_is_no_parent(text: str) -> None:
    assert TraceParent.parse(text) is None
    with pytest.raises(UsageError, match=r"--traceparent: .* is not a traceparent"):
        TraceParent.given(text, source="--traceparent")


def test_a_job_is_a_span_of_the_submitters_trace_or_of_its_own() -> None:
    job_id = new_id()
    own = TraceParent.of_job(job_id, None)
    assert (own.trace_id.hex(), own.is_own, own.is_sampled) == (job_id.hex, True, True)
    part = TraceParent.of_job(job_id, f"00-{TRACE}-{SPAN}-00")
    assert (part.trace_id.hex(), part.is_own, part.is_sampled) == (TRACE, False, False)
    assert part.span_id == own.span_id
    assert str(part) == f"00-{TRACE}-{own.span_id.hex()}-00"


def test_ids_of_spans_follow_from_their_names() -> None:
    parent = TraceParent.of_job(new_id(), None).span_id
    assert span_id_of(parent, "fetch") == span_id_of(parent, "fetch") != span_id_of(parent, "f")
    assert len(span_id_of(parent, "fetch")) == 8
