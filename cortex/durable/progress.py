"""An attempt's progress: its steps under way and its last checkpoint, for receipts of time-outs.

Ended steps are dropped, except those that a cancellation cut, which stay until another step begins.
Of a model's answer only the beginning is kept while its step is under way, and of a long one also
the latest part, for watchers.
"""

from collections import deque
from collections.abc import Callable, Reversible
from itertools import count
from typing import Final

import attrs
import trio

from cortex.domain.classification import attribute, failure_of, leaves
from cortex.domain.control_flow import Suspended
from cortex.domain.failure import Failure
from cortex.domain.job import StepKind

ANSWER_CHARS_MAX: Final = 65_536
LATEST_CHARS_MAX: Final = 16_384
"""Beyond the beginning: far more than arrives between two polls of a watcher."""
DECIDED_WITHIN_S: Final = 0.1
"""How long job code on a pod that shuts down may take to end other steps after one broke off."""
_call_numbers: Final = count(1)
_MARK: Final = "__cortex_timed_out__"


class PartialAnswer:
    """A model's output in the call under way."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = 0
        self._latest: deque[str] = deque()
        self._latest_chars = 0
        self.length = 0
        """Characters received so far, whether they are kept or not."""
        self.call = 0
        """Number of the call, larger than that of any call before it in this process."""
        self.call_began: float | None = None
        """Trio's clock."""

    def begin(self) -> Callable[[str], None]:
        """Drop the previous call; return the function that takes the next answer's pieces."""
        self._pieces = []
        self._room = ANSWER_CHARS_MAX
        self._latest.clear()
        self._latest_chars = self.length = 0
        self.call = next(_call_numbers)
        self.call_began = trio.current_time()
        return self._add

    @property
    def text(self) -> str | None:
        """Its beginning; None if nothing came."""
        return "".join(self._pieces) or None

    def since(self, offset: int) -> list[tuple[int, str]]:
        """Return the output from this offset on as (offset, text), in order.

        The middle of a long answer is not kept: then an offset lies beyond the end of the text
        before it.
        """
        beginning = min(self.length, ANSWER_CHARS_MAX)
        latest_at = max(offset, self.length - self._latest_chars)
        first = _last(self._pieces, beginning - offset)
        latest = _last(self._latest, self.length - latest_at)
        if latest_at <= offset + len(first):
            parts = [(offset, first + latest)]
        else:
            parts = [(offset, first), (latest_at, latest)]
        return [(at, text) for at, text in parts if text]

    def _add(self, piece: str) -> None:
        self.length += len(piece)
        if self._room > 0:
            self._pieces.append(piece[: self._room])
            beyond = piece[self._room :]
            self._room -= len(piece)
        else:
            beyond = piece
        if beyond:
            self._add_latest(beyond)

    def _add_latest(self, piece: str) -> None:
        piece = piece[-LATEST_CHARS_MAX:]
        self._latest.append(piece)
        self._latest_chars += len(piece)
        while self._latest_chars - len(self._latest[0]) >= LATEST_CHARS_MAX:
            self._latest_chars -= len(self._latest.popleft())


@attrs.define(eq=False)
class StepUnderWay:
    """A step that has begun and is not in the record yet. Times are trio's."""

    kind: StepKind
    key: str
    began: float
    cut_at: float | None = None
    """When a cancellation from outside ended it."""
    _answer: PartialAnswer | None = None
    is_held: bool = False
    """It waits for the replay before it does anything: see `replay`."""
    scopes: list[str] = attrs.field(factory=list)
    """Of its time-outs so far, in order."""

    @property
    def answer(self) -> PartialAnswer:
        """The model output in it."""
        if self._answer is None:
            self._answer = PartialAnswer()
        return self._answer

    @property
    def has_output(self) -> bool:
        """A model call is under way in it, and has output."""
        return self._answer is not None and self._answer.length > 0 and self.cut_at is None


@attrs.frozen
class TimedOut:
    """A step that a time-out ended: one of the step's own, or of a call in it."""

    step: StepUnderWay
    failure: Failure


def _ignore(_what: str, _step: StepUnderWay) -> None:
    """Take no notice of a change of a step."""


class Progress:
    """The state of one attempt. Concurrent steps of the job may use it at once."""

    __slots__ = (
        "_broken_off_count",
        "_one_ended",
        "_steps",
        "checkpoint_at",
        "checkpoint_key",
        "checkpoint_seq",
        "on_step",
    )

    def __init__(self, seq: int, key: str | None) -> None:
        """`seq` and `key` are those of the last step that earlier attempts committed."""
        self.checkpoint_seq = seq
        self.checkpoint_key = key
        self.checkpoint_at: float | None = None
        """Trio's clock; None if this attempt has committed nothing."""
        self.on_step: Callable[[str, StepUnderWay], None] = _ignore
        """Called for each step that has `begun`, is `done`, was `cut` or `failed`."""
        self._steps: dict[str, StepUnderWay] = {}
        self._one_ended: trio.Event | None = None
        self._broken_off_count = 0

    def committed(self, seq: int, key: str, *, at: float) -> None:
        """A step that was done at this time is in the record."""
        self.checkpoint_seq, self.checkpoint_key, self.checkpoint_at = seq, key, at

    def begin(self, kind: StepKind, key: str, *, now: float) -> StepUnderWay:
        """A step begins; it ends by `end` or by `broke_off`."""
        if self._steps:
            for each in [each for each in self._steps.values() if each.cut_at is not None]:
                del self._steps[each.key]  # the code that was cut there went on
        step = self._steps[key] = StepUnderWay(kind, key, now)
        self.on_step("begun", step)
        return step

    def end(self, step: StepUnderWay) -> None:
        """A step is in the record."""
        del self._steps[step.key]
        self.on_step("done", step)
        self._notify_end()

    async def none_under_way(self) -> None:
        """Wait until no step of the attempt is under way any more.

        When a step broke off, its own code decides what follows, if it does so at once.
        """
        while any(step.cut_at is None and not step.is_held for step in self._steps.values()):
            broken_off_count = self._broken_off_count
            if self._one_ended is None:
                self._one_ended = trio.Event()
            await self._one_ended.wait()
            if self._broken_off_count != broken_off_count:
                await trio.sleep(DECIDED_WITHIN_S)

    def broke_off(self, step: StepUnderWay, error: BaseException) -> None:
        """A step was left by this error; a time-out's error is marked with its step."""
        if any(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
            self.cut(step)
        else:
            self.failed(step)
            _mark(error, step)

    def cut(self, step: StepUnderWay) -> None:
        """A cancellation from outside ended a step."""
        step.cut_at = trio.current_time()
        self._broke_off("cut", step)

    def failed(self, step: StepUnderWay) -> None:
        """A step ended with an error of its own."""
        self._steps.pop(step.key, None)
        self._broke_off("failed", step)

    def _broke_off(self, what: str, step: StepUnderWay) -> None:
        self._broken_off_count += 1
        self.on_step(what, step)
        self._notify_end()

    def _notify_end(self) -> None:
        if self._one_ended is not None:
            self._one_ended.set()
            self._one_ended = None

    def under_way(self, key: str) -> StepUnderWay | None:
        return self._steps.get(key)

    @property
    def longest(self) -> tuple[StepUnderWay, int] | None:
        """The step that has run longest, and how many more run; None: none runs."""
        running = [
            each for each in self._steps.values() if each.cut_at is None and not each.is_held
        ]
        if not running:
            return None
        return min(running, key=lambda step: step.began), len(running) - 1

    @property
    def answers(self) -> list[tuple[str, PartialAnswer]]:
        """Model output of the steps under way, by their keys."""
        return [(key, step.answer) for key, step in self._steps.items() if step.has_output]

    def cut_since(self, instant: float) -> list[StepUnderWay]:
        """Steps that a cancellation has ended from this instant on, in the order of beginning."""
        steps = self._steps.values()
        return [step for step in steps if step.cut_at is not None and step.cut_at >= instant]


def timed_out_by(error: BaseException) -> TimedOut | None:
    """The step whose time-out raised this error; for a group, call this with each leaf."""
    mark = attribute(error, _MARK)
    return mark if isinstance(mark, TimedOut) else None


def _mark(error: BaseException, step: StepUnderWay) -> None:
    """Mark a time-out's error with its step: the journal keeps no errors."""
    for leaf in leaves(error):
        # A time-out that opened a breaker comes as the wish to wait for that.
        cause = leaf.__context__ if isinstance(leaf, Suspended) else leaf
        failure = None if cause is None else failure_of(cause)
        if failure is not None and failure.scope is not None:
            mark_timed_out(leaf, TimedOut(step, failure))


def mark_timed_out(error: BaseException, timed_out: TimedOut) -> None:
    """Mark an error for `timed_out_by`."""
    object.__setattr__(error, _MARK, timed_out)


def _last(pieces: Reversible[str], chars: int) -> str:
    """Return the last `chars` characters of pieces that have at least that many."""
    if chars <= 0:
        return ""
    wanted: list[str] = []
    for piece in reversed(pieces):
        wanted.append(piece)
        chars -= len(piece)
        if chars <= 0:
            break
    return "".join(reversed(wanted))[-chars:]  # without the excess
