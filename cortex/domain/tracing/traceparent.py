"""Traces: which trace and span a job belongs to, and what it hands on to others.

Every job has a trace, also while nothing records spans: that of the `traceparent` it was submitted
with, else its own, whose id is the job's. Ids of spans follow from what they stand for, so that
several pods, and a pod after a kill, name the same span. SQL derives trace and span of a job in the
same way: `cortex.trace_id`, `cortex.traceparent`.
"""

import re
from hashlib import blake2b
from typing import Final, Self
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError

HEADER: Final = "traceparent"
SAMPLED: Final = 1
_SHAPE: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SHAPE_LATER: Final = re.compile(_SHAPE.pattern + "(-.*)?", re.DOTALL)
"""A later version may add fields."""


@attrs.frozen
class TraceParent:
    """A span that others are part of: the header `traceparent` of W3C Trace Context."""

    trace_id: bytes
    span_id: bytes
    flags: int = SAMPLED

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return None for what the recommendation says to ignore."""
        shape = _SHAPE if text.startswith("00") else _SHAPE_LATER
        match = shape.fullmatch(text)
        if match is None or match[1] == "ff":
            return None
        trace_id, span_id = bytes.fromhex(match[2]), bytes.fromhex(match[3])
        if not any(trace_id) or not any(span_id):
            return None
        return cls(trace_id, span_id, int(match[4], 16))

    @classmethod
    def given(cls, text: str, *, source: str) -> Self:
        """Raises `UsageError` for a value that a person has given at `source`."""
        parsed = cls.parse(text)
        if parsed is None:
            raise UsageError(
                f"{source}: {text[:80]!r} is not a traceparent",
                hint="such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            )
        return parsed

    @classmethod
    def of_job(cls, job_id: UUID, submitted: str | None) -> Self:
        """Return the span of a job, which its attempts are parts of."""
        parent = None if submitted is None else cls.parse(submitted)
        if parent is None:
            return cls(job_id.bytes, job_id.bytes[8:])
        return cls(parent.trace_id, job_id.bytes[8:], parent.flags)

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def is_own(self) -> bool:
        """Whether it is the span of a job that no other trace caused."""
        return self.trace_id[8:] == self.span_id

    def child(self, span_id: bytes) -> Self:
        return attrs.evolve(self, span_id=span_id)

    def __str__(self) -> str:
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{self.flags:02x}"


def span_id_of(parent: bytes, name: str) -> bytes:
    """Return the id of the span that `name` stands for within another one."""
    return blake2b(name.encode(), key=parent, digest_size=8).digest()
