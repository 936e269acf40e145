"""Which traces are recorded: the samplers that OpenTelemetry names in OTEL_TRACES_SAMPLER."""

import math
from typing import Final, Self

import attrs

from cortex.domain.tracing.traceparent import SAMPLED, TraceParent

DEFAULT: Final = "parentbased_always_on"
_PARENT: Final = "parentbased_"
_ROOTS: Final = ("always_on", "always_off", "traceidratio")
NAMES: Final = (*_ROOTS, *(_PARENT + name for name in _ROOTS))
RANDOM_BITS: Final = 56
"""Of a trace id, the last ones: all that W3C Trace Context promises. An id of ours has more."""


@attrs.frozen(kw_only=True)
class Sampler:
    """Decides by the trace id alone, so that all pods decide alike and nothing is stored."""

    ratio: float = 1.0
    """Of the traces that begin here, from 0 to 1."""
    follows_parent: bool = True
    """A job that was submitted in another trace is recorded exactly if that one is."""

    @classmethod
    def named(cls, name: str, argument: str) -> Self | None:
        """Return the sampler of a standard name and argument; None for an unknown one."""
        root = name.removeprefix(_PARENT)
        if name not in NAMES:
            return None
        follows_parent = name != root
        if root != "traceidratio":
            return cls(ratio=float(root == "always_on"), follows_parent=follows_parent)
        try:
            ratio = float(argument or 1.0)
        except ValueError:
            return None
        if not 0 <= ratio <= 1 or math.isnan(ratio):
            return None
        return cls(ratio=ratio, follows_parent=follows_parent)

    @property
    def takes_all(self) -> bool:
        """Whether each trace that begins here is recorded."""
        return self.ratio >= 1

    def decided(self, span: TraceParent) -> TraceParent:
        """Return the span with the decision about its trace in its flags."""
        is_sampled = span.is_sampled
        if span.is_own or not self.follows_parent:
            number = int.from_bytes(span.trace_id) & ((1 << RANDOM_BITS) - 1)
            is_sampled = number < self.ratio * (1 << RANDOM_BITS)
        flags = span.flags & ~SAMPLED | (SAMPLED if is_sampled else 0)
        return span if flags == span.flags else attrs.evolve(span, flags=flags)
