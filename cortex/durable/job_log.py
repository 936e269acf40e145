"""The lines that jobs write, until they are kept: bounded, and never in the way of a job.

Code of a job writes from any thread, as fast as it likes. A line that does not fit a bound is
dropped and counted, for its attempt and for the pod; the count becomes a line of its own.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs
import orjson

from cortex.domain.classification import describe
from cortex.domain.hot import hot
from cortex.domain.job import Claim, Lease
from cortex.domain.log_line import (
    LINE_COST,
    MESSAGE_CHARS_MAX,
    NAME_CHARS_MAX,
    Level,
    LogLine,
    kept_fields,
    kept_text,
    size_of,
    without_long_secrets,
)
from cortex.domain.log_line import shown as as_text
from cortex.domain.tracing import current
from cortex.logger import Logger

ATTEMPT_LINES_MAX: Final = 50_000
ATTEMPT_CHARS_MAX: Final = 16 * 1024 * 1024
"""One attempt keeps no more than this: ten megabytes of log help nobody, and fill a database."""
RATE: Final = 10_000.0
"""Lines per second of one attempt, as much as a pod writes into the database."""
BURST: Final = 20_000.0
LINES_MAX: Final = 50_000
CHARS_MAX: Final = 32 * 1024 * 1024
"""Lines that wait to be kept, of all jobs of a process: five seconds of a busy pod, or minutes
without a database of one that is not."""
ATTEMPTS_MAX: Final = 4_096
"""Attempts whose lines are counted; the one that has been silent for longest is forgotten."""
OPEN_MAX: Final = 256
"""Lines that were begun and not ended."""
OPEN_S: Final = 1.0
"""After this long a line counts as ended: a prompt, or a bar of progress."""
REMARK_S: Final = 1.0
"""Between two remarks about dropped lines of one attempt."""
STEP_CHARS_MAX: Final = 500


class Why(StrEnum):
    """Why lines were dropped; the labels of a metric."""

    RATE = "rate"
    ATTEMPT = "attempt"
    BUFFER = "buffer"
    REFUSED = "refused"
    LATE = "late"
    """Of a job in a process of its own, from a thread that has outlived it."""


REMARKS: Final = {
    Why.RATE: f"an attempt may write {RATE:,.0f} lines a second",
    Why.ATTEMPT: f"an attempt keeps {ATTEMPT_LINES_MAX:,} lines and "
    f"{ATTEMPT_CHARS_MAX >> 20} MB of text",
    Why.BUFFER: "the pod could not store them in time",
    Why.REFUSED: "the database refused them",
    Why.LATE: "their attempt had ended",
}


@attrs.define(eq=False)
class _Tally:
    """What one attempt has written."""

    claim: Claim
    lines: int = 0
    chars: int = 0
    room: float = BURST
    refilled_at: float = 0.0
    remarked_at: float = float("-inf")
    dropped: dict[Why, int] = attrs.field(factory=dict)
    """Since the last remark."""

    def refusal(self, now: float, size: int) -> Why | None:
        """Return why a line does not fit; None: it fits, and counts."""
        if self.lines >= ATTEMPT_LINES_MAX or self.chars + size > ATTEMPT_CHARS_MAX:
            return Why.ATTEMPT
        self.room = min(BURST, self.room + max(0.0, now - self.refilled_at) * RATE)
        self.refilled_at = now
        if self.room < 1:
            return Why.RATE
        self.room -= 1
        self.lines += 1
        self.chars += size
        return None


@attrs.define(eq=False)
class _Open:
    """A line that is not ended."""

    claim: Claim
    step: str | None
    stream: str
    text: str
    length: int
    began_at: float


@hot(kw_only=True)
class WrittenLine:
    """A line as code has written it, on its way to the buffer of its pod."""

    level: Level
    message: str
    step: str | None
    source: str | None
    fields: str | None = None
    """JSON text of an object."""
    length: int | None = None
    """Characters of the original message, if this is only its beginning."""
    age_s: float = 0.0


@hot(kw_only=True)
class Relay:
    """Lines of one attempt on their way to its pod."""

    lines: Sequence[WrittenLine]
    dropped: Mapping[Why, int]
    late_count: int
    """Lines of earlier attempts in the same process."""


def _relayed(line: LogLine, now: float) -> WrittenLine:
    return WrittenLine(
        age_s=now - line.written_at,
        level=line.level,
        step=line.step,
        source=line.source,
        message=line.message,
        fields=line.fields,
    )


class LineBuffer:
    """Implements `JobLog`. Whoever keeps the lines takes them in batches, in their order."""

    def __init__(self, now: Callable[[], float], *, wake: Callable[[], None] | None = None) -> None:
        """`now`: a clock that any thread may read. `wake`: called when there is something."""
        self._now = now
        self.wake = wake
        self.is_closed = False
        """Nobody takes lines any more: they are counted only."""
        self._lock = threading.RLock()  # a garbage collection may log while its thread holds it
        self._lines: deque[LogLine] = deque()
        self._chars = 0
        self._number = 0
        self._tallies: OrderedDict[Lease, _Tally] = OrderedDict()
        self._owing: dict[Lease, None] = {}
        """Attempts with dropped lines that no remark counts yet."""
        self._open: dict[tuple[str, Lease, int], _Open] = {}
        self.dropped_counts: dict[Why, int] = dict.fromkeys(Why, 0)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def has_any(self) -> bool:
        """Whether lines or remarks wait, or lines that are not ended."""
        return bool(self._lines or self._owing or self._open)

    def add(
        self,
        claim: Claim,
        level: Level,
        message: str,
        *,
        step: str | None,
        source: str | None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """See `JobLog`."""
        # Before anything is locked: values of fields run code of the application.
        kept = kept_fields(fields)
        name = None if source is None else kept_text(source, limit=NAME_CHARS_MAX)
        self._add(
            claim, WrittenLine(level=level, message=message, step=step, source=name, fields=kept)
        )

    def write(self, claim: Claim, text: str, *, step: str | None, stream: str, thread: int) -> None:
        """See `JobLog`."""
        key = stream, claim.lease, thread
        text = without_long_secrets(text)
        *ended, rest = text.split("\n")
        with self._lock:
            was_idle = not self.has_any
            line = self._open.pop(key, None)
            for each in ended:
                if line is not None:
                    self._append(line, each)
                    self._end(line)
                    line = None
                elif each:
                    written = WrittenLine(level=Level.INFO, message=each, step=step, source=stream)
                    self._add(claim, written)
            if rest:
                line = line or _Open(claim, step, stream, "", 0, self._now())
                self._append(line, rest)
            if line is not None:
                self._open[key] = line
            while len(self._open) > OPEN_MAX:
                self._end(self._open.pop(next(iter(self._open))))
        if was_idle and self._open:
            self._wake()

    def end_lines(self, *, lease: Lease | None = None) -> None:
        """End the lines that were begun: of one attempt, or all."""
        with self._lock:
            for key in [key for key in self._open if lease is None or key[1] == lease]:
                self._end(self._open.pop(key))

    def missed(self, claim: Claim, why: Why, count: int) -> None:
        """Count lines of an attempt that were dropped elsewhere."""
        with self._lock:
            self._drop(self._tally(claim), why, count)
        self._wake()

    def relay(self, claim: Claim, line: WrittenLine) -> None:
        """Keep a line that another process has taken, as this one would."""
        fields = None
        if line.fields is not None:
            given = orjson.loads(line.fields)
            fields = kept_fields(given if isinstance(given, dict) else {"fields": given})
        step = None if line.step is None else kept_text(line.step, limit=STEP_CHARS_MAX)
        source = None if line.source is None else kept_text(line.source, limit=NAME_CHARS_MAX)
        self._add(claim, attrs.evolve(line, step=step, source=source, fields=fields))

    def count(self, why: Why, count: int) -> None:
        """Count lines that were dropped and belong to no attempt that is known."""
        with self._lock:
            self.dropped_counts[why] += count

    def take_to_relay(self, lease: Lease, count: int) -> Relay:
        """Remove and return the oldest lines for another process, which stores those of `lease`."""
        now = self._now()
        with self._lock:
            lines = self.take(count, remarks=False)
            own = [_relayed(line, now) for line in lines if line.lease == lease]
            late_count = len(lines) - len(own)
            tally, self._owing = self._tallies.get(lease), {}
            dropped = {} if tally is None else dict(tally.dropped)
            if tally is not None:
                tally.dropped.clear()
        return Relay(lines=own, dropped=dropped, late_count=late_count)

    def take(self, count: int, *, remarks: bool = True) -> list[LogLine]:
        """Remove and return the oldest lines, then the remarks about dropped ones that are due."""
        now = self._now()
        with self._lock:
            for key in [key for key, each in self._open.items() if now >= each.began_at + OPEN_S]:
                self._end(self._open.pop(key))
            taken = [self._lines.popleft() for _ in range(min(count, len(self._lines)))]
            self._chars -= sum(map(size_of, taken))
            for lease in list(self._owing) if remarks and len(taken) < count else ():
                tally = self._tallies[lease]
                if self.is_closed or now >= tally.remarked_at + REMARK_S:
                    del self._owing[lease]
                    tally.remarked_at = now
                    taken += self._remarks(tally, now)
        return taken

    def give_up(self, lines: list[LogLine], why: Why) -> None:
        """Count lines that were taken and could not be kept."""
        with self._lock:
            for line in lines:
                count = 1 if line.dropped is None else line.dropped
                tally = self._tallies.get(line.lease)
                if line.dropped is None:
                    self.dropped_counts[why] += 1
                if tally is not None:
                    tally.dropped[why] = tally.dropped.get(why, 0) + count
                    self._owing[line.lease] = None

    def _remarks(self, tally: _Tally, now: float) -> list[LogLine]:
        remarks = []
        for why, count in tally.dropped.items():
            lines = "1 line is" if count == 1 else f"{count:,} lines are"
            text = f"{lines} missing here: {REMARKS[why]}"
            remark = WrittenLine(level=Level.WARNING, message=text, step=None, source="cortex")
            remarks.append(self._numbered(tally.claim, remark, now, dropped=count))
        tally.dropped.clear()
        return remarks

    def _append(self, line: _Open, text: str) -> None:
        line.length += len(text)
        if len(line.text) <= 2 * MESSAGE_CHARS_MAX:
            line.text += text[: 2 * MESSAGE_CHARS_MAX]

    def _end(self, line: _Open) -> None:
        if line.length:
            written = WrittenLine(
                level=Level.INFO,
                message=line.text,
                step=line.step,
                source=line.stream,
                length=line.length,
                age_s=self._now() - line.began_at,
            )
            self._add(line.claim, written)

    def _add(self, claim: Claim, written: WrittenLine) -> None:
        now = self._now()
        size = LINE_COST + min(len(written.message), MESSAGE_CHARS_MAX)
        size += 0 if written.fields is None else len(written.fields)
        with self._lock:
            was_idle = not self.has_any
            tally = self._tally(claim)
            why = tally.refusal(now, size)
            if self.is_closed or len(self._lines) >= LINES_MAX or self._chars + size > CHARS_MAX:
                why = why or Why.BUFFER
            if why is not None:
                self._drop(tally, why, 1)
            else:
                line = self._numbered(claim, written, now)
                self._chars += size_of(line)
                self._lines.append(line)
        if was_idle:
            self._wake()

    def _numbered(
        self, claim: Claim, written: WrittenLine, now: float, *, dropped: int | None = None
    ) -> LogLine:
        self._number += 1
        return LogLine(
            lease=claim.lease,
            job_type=claim.type,
            traceparent=claim.traceparent,
            number=self._number,
            written_at=now - written.age_s,
            level=written.level,
            step=written.step,
            source=written.source,
            message=kept_text(written.message, length=written.length),
            fields=written.fields,
            dropped=dropped,
        )

    def _tally(self, claim: Claim) -> _Tally:
        tally = self._tallies.get(claim.lease)
        if tally is None:
            # The payload may be large, and an attempt is remembered for long.
            tally = _Tally(attrs.evolve(claim, payload=""), refilled_at=self._now())
            self._tallies[claim.lease] = tally
            while len(self._tallies) > ATTEMPTS_MAX:
                lease, _ = self._tallies.popitem(last=False)
                self._owing.pop(lease, None)
        else:
            self._tallies.move_to_end(claim.lease)
        return tally

    def _drop(self, tally: _Tally, why: Why, count: int) -> None:
        self.dropped_counts[why] += count
        tally.dropped[why] = tally.dropped.get(why, 0) + count
        self._owing[tally.claim.lease] = None

    def _wake(self) -> None:
        if self.wake is not None:
            self.wake()


class _Inside(threading.local):
    is_quiet = False


_inside: Final = _Inside()


class Quiet:
    """A block in which this thread keeps no lines: what it writes has been kept already."""

    __slots__ = ("_was_quiet",)

    def __enter__(self) -> None:
        self._was_quiet, _inside.is_quiet = _inside.is_quiet, True

    def __exit__(self, *_: object) -> None:
        _inside.is_quiet = self._was_quiet


def is_quiet() -> bool:
    """Return whether this thread is in a block of `Quiet`."""
    return _inside.is_quiet


def write_line(message: object, level: Level, fields: Mapping[str, Any]) -> None:
    """Keep a line of the job whose code calls this, and write it to the pod's own log."""
    text = message if isinstance(message, str) else as_text(message)
    kept = orjson.loads(kept_fields(fields) or "{}")  # whatever the code of the values does
    shown = {_own(name): value for name, value in kept.items()}
    found = current.origin()
    if found is None:
        getattr(_log, level.word)(text, **shown)
        return
    found.log.add(found.claim, level, text, step=found.step, source=None, fields=kept)
    try:
        with Quiet():
            getattr(_log, level.word)(text, **shown)
    except Exception as error:  # noqa: BLE001 -- processors of the application
        remark = f"the pod's own log has not taken this line: {describe(error)}"
        found.log.add(found.claim, Level.ERROR, remark, step=found.step, source="cortex")


_OURS: Final = frozenset(
    {"self", "event", "level", "timestamp", "logger", "exc_info", "stack_info"}
    | {"job", "job_type", "attempt", "step", "trace_id"}
)


def _own(name: str) -> str:
    """Return the name of a field in the pod's log, where some names are taken."""
    return f"{name}_" if name in _OURS else name


_log = Logger("ctx.log")  # the application's words, shown like its own loggers
