"""Traces: which trace and span a job belongs to, and what it hands on to others.

Every job has a trace, also while nothing records spans: that of the `traceparent` it was submitted
with, else its own, whose id is the job's. Ids of spans follow from what they stand for, so that
several pods, and a pod after a kill, name the same span. SQL derives trace and span of a job in the
same way: `cortex.trace_id`, `cortex.traceparent`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Self
from uuid import UUID

from cortex.domain.errors import UsageError
from cortex.domain.hot import hot

HEADER: Final = "traceparent"
SAMPLED: Final = 1
NAMES_MAX: Final = 8192
_SHAPE: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SHAPE_LATER: Final = re.compile(_SHAPE.pattern + "(-.*)?", re.DOTALL)
"""A later version may add fields."""


@hot
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
            own = job_id.bytes
            return cls(own, own[8:])
        return cls(parent.trace_id, job_id.bytes[8:], parent.flags)

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def is_own(self) -> bool:
        """Whether it is the span of a job that no other trace caused."""
        return self.trace_id[8:] == self.span_id

    def child(self, span_id: bytes) -> Self:
        return type(self)(self.trace_id, span_id, self.flags)

    def __str__(self) -> str:
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-{self.flags:02x}"


def span_id_of(parent: bytes, name: str) -> bytes:
    """Return the id of the span that `name` stands for within another one."""
    return (int.from_bytes(parent, "little") ^ number_of(name)).to_bytes(8, "little")


@lru_cache(NAMES_MAX)
def number_of(name: str) -> int:
    """Return the number that makes the id of a span from the one around it: names repeat."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def attempt_name(attempt: int) -> str:
    return f"attempt {attempt}"


def step_name(key: str) -> str:
    """Return the name of a step for its id: no attempt or call has the same."""
    return f"step {key}"


def with_traceparent(headers: Mapping[str, str] | None, value: str | None) -> dict[str, str]:
    """Return headers of a request with this traceparent, unless they have one already."""
    given = dict(headers or {})
    if value is not None and not any(name.lower() == HEADER for name in given):
        given[HEADER] = value
    return given
