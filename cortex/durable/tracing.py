"""Spans of an attempt: recorded as plain values, encoded and exported elsewhere.

Without a collector no attempt has a trace, and each step pays one comparison. With one, a step
leaves a tuple in a bounded buffer; a full buffer drops new spans and counts them.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import attrs
import trio

from cortex.domain.approvals.approval import Decided
from cortex.domain.classification import class_name, describe
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.failure import Failure
from cortex.domain.job import Claim, Finish, Operation, StepDone, StepKind
from cortex.domain.messages.message import Message
from cortex.domain.redaction import clean_text
from cortex.domain.tracing.traceparent import (
    TraceParent,
    attempt_name,
    span_id_of,
    step_name,
)
from cortex.durable.progress import StepUnderWay

BUFFER_MAX: Final = 65_536
"""Spans that wait for export: three seconds of a busy pod."""
END_SPANS: Final = 2
"""Of an attempt and, if it is the last, of its job."""
ERROR_CHARS_MAX: Final = 500
T = TypeVar("T")
Value = str | int | float | bool | tuple[str, ...]


class SpanKind(IntEnum):
    """As OpenTelemetry numbers them."""

    INTERNAL = 1
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@attrs.frozen(kw_only=True, eq=False)
class Span:
    """A span that has ended."""

    parent: TraceParent
    """Its trace and the span that it is part of; that of the span itself for the first one."""
    id: bytes
    name: str
    began: float
    ended: float
    """Both by trio's clock, or in seconds since 1970."""
    is_unix: bool = False
    kind: SpanKind = SpanKind.INTERNAL
    attributes: Mapping[str, Value] = attrs.field(factory=dict)
    error: str | None = None


StepSpan = tuple[StepKind, str, float, float, str | None]
"""A step that was recorded: its kind, key, begin, seconds, and the key of the step around it."""


class SpanBuffer:
    """What waits for export, oldest first: attempts that have something new, and other spans.

    A running attempt with new steps is passed over once: most end before the next export, and all
    of an attempt is encoded with less work than its parts.
    """

    __slots__ = ("dropped_count", "finish", "recent", "room", "waiting")

    def __init__(self, finish: "Callable[[AttemptTrace], bool]" = lambda _: False) -> None:
        """`finish` takes an attempt at its end, with its steps, or leaves it to the export."""
        self.finish = finish
        self.waiting: dict[AttemptTrace | Span, None] = {}
        """In order; what is finished earlier is removed."""
        self.recent: dict[AttemptTrace, None] = {}
        """Running attempts that wait since the last export."""
        self.room = BUFFER_MAX
        """How many more spans fit."""
        self.dropped_count = 0

    def add(self, span: Span) -> None:
        if self.room > 0:
            self.room -= 1
            self.waiting[span] = None
        else:
            self.dropped_count += 1

    def take(self, count: int) -> "list[AttemptTrace | Span]":
        """Remove and return the oldest ones."""
        taken = list(islice(self.waiting, count))
        for each in taken:
            del self.waiting[each]
        self.waiting.update(dict.fromkeys(self.recent))
        self.recent.clear()
        return taken


class AttemptTrace:
    """Records the spans of one attempt. What costs is left to their encoding."""

    __slots__ = (
        "_buffer",
        "_calls_count",
        "_flags",
        "_job",
        "_span",
        "began",
        "claim",
        "ended_at",
        "ending",
        "is_end_waiting",
        "steps",
    )

    def __init__(self, claim: Claim, buffer: SpanBuffer, *, flags: int) -> None:
        """`flags`: those of the trace."""
        self.claim = claim
        self.steps: list[StepSpan] = []
        """Recorded since the last export."""
        self.began = 0.0
        self.ended_at: float | None = None
        self.is_end_waiting = False
        """Its end is left to the export."""
        self.ending: Operation | None = None
        """What is in the record; None after the end: another attempt owns the job."""
        self._buffer = buffer
        self._calls_count = 0
        self._flags = flags
        self._job: TraceParent | None = None
        self._span: TraceParent | None = None

    @property
    def job(self) -> TraceParent:
        """The span of the job, which its attempts are parts of."""
        if self._job is None:
            claim = self.claim
            job = self._job = TraceParent.of_job(claim.lease.job_id, claim.traceparent)
            if job.flags != self._flags:
                self._job = TraceParent(job.trace_id, job.span_id, self._flags)
        return self._job

    @property
    def span(self) -> TraceParent:
        if self._span is None:
            name = attempt_name(self.claim.lease.attempt)
            self._span = self.job.child(span_id_of(self.job.span_id, name))
        return self._span

    def step_span(self, key: str) -> TraceParent:
        return self.span.child(span_id_of(self.span.span_id, step_name(key)))

    def stepped(self, done: StepDone, began: float) -> None:
        """A step is recorded."""
        buffer = self._buffer
        if buffer.room <= 0:
            buffer.dropped_count += 1
            return
        buffer.room -= 1
        if not self.steps:
            buffer.recent[self] = None
        self.steps.append((done.kind, done.key, began, done.duration_s, done.parent_key))

    def ended(self, ending: Operation | None, began: float, now: float) -> None:
        """The attempt has ended; `ending` is in the record. Both times are trio's."""
        buffer = self._buffer
        self.ending, self.began, self.ended_at = ending, began, now
        if buffer.finish(self):
            buffer.recent.pop(self, None)
            buffer.waiting.pop(self, None)
        elif buffer.room < END_SPANS:
            buffer.dropped_count += END_SPANS
        else:
            buffer.room -= END_SPANS
            self.is_end_waiting = True
            # It may wait for long, and its payload may be large.
            self.claim = attrs.evolve(self.claim, payload="")
            buffer.recent.pop(self, None)
            buffer.waiting[self] = None

    def taken(self) -> list[StepSpan]:
        """Return its new steps, which no longer count in the buffer."""
        steps, self.steps = self.steps, []
        self._buffer.room += len(steps)
        return steps

    def end_taken(self) -> bool:
        """Return whether its end is to be exported now; it no longer counts in the buffer."""
        is_mine, self.is_end_waiting = self.is_end_waiting, False
        if is_mine:
            self._buffer.room += END_SPANS
        return is_mine

    def broke_off(self, step: StepUnderWay, parent_key: str | None, error: BaseException) -> None:
        """A step has ended without a record."""
        parent = self.span if parent_key is None else self.step_span(parent_key)
        self._buffer.add(
            Span(
                parent=parent,
                id=span_id_of(self.span.span_id, step_name(step.key)),
                name=step.key,
                began=step.began,
                ended=trio.current_time(),
                attributes={"cortex.step.kind": step.kind.value, **_ending(error)},
                error=error_text(error),
            )
        )

    def called(
        self,
        key: str,
        name: str,
        began: float,
        attributes: Mapping[str, Value],
        *,
        error: BaseException | str | None = None,
    ) -> None:
        """A call of step `key` to the outside has ended."""
        self._calls_count += 1
        parent = self.step_span(key)
        more = {} if not isinstance(error, BaseException) else _ending(error)
        self._buffer.add(
            Span(
                parent=parent,
                id=span_id_of(parent.span_id, f"call {self._calls_count}"),
                name=name,
                kind=SpanKind.CLIENT,
                began=began,
                ended=trio.current_time(),
                attributes={**attributes, **more},
                error=error_text(error) if isinstance(error, BaseException) else error,
            )
        )

    def waited(self, key: str, decided: Decided) -> None:
        """A decision has come: the wait for it is a part of the job, of no attempt."""
        if decided.at is None or decided.waited_s is None:
            return
        ended = decided.at.timestamp()
        self._buffer.add(
            Span(
                parent=self.job,
                id=span_id_of(self.job.span_id, f"approval {decided.id}"),
                name=f"approval {key}",
                began=ended - decided.waited_s,
                ended=ended,
                is_unix=True,
                attributes={
                    "cortex.approval.id": str(decided.id),
                    "cortex.approval.status": decided.status.value,
                    "cortex.approval.risk": decided.risk.value,
                },
            )
        )


def error_text(error: BaseException) -> str | None:
    """Return what a span says of an error; None for what is none: a wait, a stop."""
    if isinstance(error, (Suspended, LeaseLost, trio.Cancelled)):
        return None
    return clean_text(describe(error), limit=ERROR_CHARS_MAX)


def _ending(error: BaseException) -> dict[str, Value]:
    if isinstance(error, Suspended):
        return {"cortex.outcome": "suspended", "cortex.waiting_on": error.waiting_on}
    if isinstance(error, (LeaseLost, trio.Cancelled)):
        return {"cortex.outcome": "cut"}
    return {"error.type": class_name(error)}


async def traced(
    trace: AttemptTrace | None,
    key: str,
    name: str,
    attributes: Mapping[str, Value],
    call: Callable[[], Awaitable[T]],
) -> T:
    """Await a call of step `key`, in a span of its own; pass on its result or error."""
    if trace is None:
        return await call()
    record = partial(trace.called, key, name, trio.current_time(), attributes)
    try:
        result = await call()
    except BaseException as error:
        record(error=error)
        raise
    record()
    return result


def tool_attributes(tool: str, **more: Value) -> dict[str, Value]:
    """Return what the semantic conventions for generative AI want of a tool call."""
    names: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return names | {f"cortex.{name}": value for name, value in more.items()}


class Tracing(Protocol):
    """Decides which attempts are traced; given by the pod."""

    def begin(self, claim: Claim) -> AttemptTrace | None:
        """Return the trace of an attempt; None if it is not recorded."""

    def handed_on(self, claim: Claim) -> str | None:
        """Return the traceparent for what an attempt without a trace calls."""


class Untraced:
    """Records nothing, and hands on what the submitter gave."""

    def begin(self, claim: Claim) -> AttemptTrace | None:  # noqa: ARG002
        return None

    def handed_on(self, claim: Claim) -> str | None:
        return claim.traceparent

    def delivering(self, message: Message) -> "Delivery":
        """See `Deliveries`. A trace that nobody records is not handed on."""
        parent = TraceParent.parse(message.trace or "")
        return Delivery(None if parent is None or parent.is_own else parent, None, None)


def outcome_of(ending: Operation | None) -> str:
    """Return one word for how an attempt ended."""
    if ending is None:
        return "lease_lost"
    if isinstance(ending, Finish):
        return ending.status.lower()
    outcome: Any = getattr(ending, "outcome", None)
    return outcome or ("retry" if getattr(ending, "is_counted", False) else "suspended")


# --- Messages: sent long after the job, maybe by another pod.


class Delivery:
    """One attempt to send a message."""

    __slots__ = ("_began", "_buffer", "_parent", "_span", "handed_on")

    def __init__(
        self, span: TraceParent | None, parent: TraceParent | None, buffer: SpanBuffer | None
    ) -> None:
        """Without a buffer no span is recorded, and `span` is only handed on."""
        self.handed_on = None if span is None else str(span)
        """The traceparent for the receiver."""
        self._span = span
        self._parent = parent
        self._buffer = buffer
        self._began = trio.current_time()

    def ended(self, message: Message, channel: str, failure: Failure | None) -> None:
        """The receiver took it, or not."""
        if self._buffer is None or self._span is None or self._parent is None:
            return
        attributes: dict[str, Value] = {
            "messaging.operation.type": "send",
            "messaging.destination.name": message.topic,
            "messaging.message.id": str(message.id),
            "cortex.subscription": message.subscription,
            "cortex.channel": channel,
            "cortex.attempt": message.attempt,
        }
        if failure is not None:
            attributes["error.type"] = failure.code
        self._buffer.add(
            Span(
                parent=self._parent,
                id=self._span.span_id,
                name=f"send {message.topic}",
                kind=SpanKind.PRODUCER,
                began=self._began,
                ended=trio.current_time(),
                attributes=attributes,
                error=None if failure is None else clean_text(failure.message),
            )
        )


class Deliveries(Protocol):
    """Traces the sending of messages; given by the pod."""

    def delivering(self, message: Message) -> Delivery:
        """A message is about to be sent."""
