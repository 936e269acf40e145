"""The steps of a job on a time axis: one unpainted line per step, with its duration and cost."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final

import attrs

from cortex.domain.approvals.approval import ApprovalRow, ApprovalStatus
from cortex.domain.job import StepKind
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.jobs import EndedAttempt, JobRow, StepRow
from cortex.view.cells import fit, pad, width_of
from cortex.view.jobs import OUTCOMES, ended_sign
from cortex.view.phrases import money, tokens
from cortex.view.steps import step_label

DECIDER_MAX: Final = 20
WAITS: Final = "waits for people"
TICK_CELLS_MIN: Final = 10
MINUTE_S: Final = 60

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_HALF: Final = 4
_TICKS_S: Final = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800),
)
STYLES: Final[Mapping[str, str]] = {
    StepKind.MODEL: "run",
    StepKind.TOOL: "accent",
    StepKind.STEP: "done",
    StepKind.EFFECT: "accent",
    StepKind.APPROVAL: "appr",
    StepKind.MESSAGE: "accent",
    StepKind.PATCH: "dim",
    StepKind.EMIT: "done",
    StepKind.FIRST: "done",
}
"""The colour of a bar, here and in the terminal UI."""


def step_style(kind: str) -> str:
    """Return the colour of a step's bar; plain for a kind that only a newer release has."""
    return STYLES.get(kind, "")


class Look(Enum):
    """What a bar stands for."""

    DONE = auto()
    RUNNING = auto()
    WAIT = auto()


def lead_of(position: float, cells: int) -> int:
    """Return how many cells are left of a position on an axis."""
    return max(0, min(int(position), cells - 1))


def bar_text(begin: float, end: float, cells: int, look: Look) -> str:
    """Return the bar between two positions on an axis, without its lead.

    It is at least an eighth of a cell long; what is out of sight is cut off.
    """
    eighths = max(1, round((min(end, cells) - lead_of(begin, cells)) * 8))
    full, rest = divmod(eighths, 8)
    match look:
        case Look.WAIT:
            return "░" * max(1, full + (rest >= _HALF))
        case Look.RUNNING:
            return "█" * max(0, full - 1) + "▒"
        case Look.DONE:
            return "█" * full + (_EIGHTHS[rest] if rest else "")


@attrs.frozen
class Axis:
    """A time axis that starts at `start` and is `cells` wide."""

    start: datetime
    length_s: float
    cells: int

    def at(self, instant: datetime) -> float:
        """Return the position of an instant in cells, from 0 to `cells`."""
        share = (instant - self.start).total_seconds() / self.length_s
        return min(max(share, 0.0), 1.0) * self.cells

    def bar(self, start: datetime, end: datetime, look: Look) -> str:
        bar = bar_text(self.at(start), self.at(end), self.cells, look)
        return self.mark(start, bar)

    def mark(self, instant: datetime, sign: str) -> str:
        """Return text that begins at an instant."""
        return " " * lead_of(self.at(instant), self.cells) + sign

    def ticks(self) -> str:
        """Return the labels of the axis: 0s, 5s, 10s and so on."""
        fewest_s = self.length_s * TICK_CELLS_MIN / self.cells
        step_s = next((tick for tick in _TICKS_S if tick >= fewest_s), self.length_s)
        line = ""
        for number in range(int(self.length_s / step_s) + 1):
            place = int(number * step_s / self.length_s * self.cells)
            label = _tick(number * step_s)
            if place + len(label) <= self.cells:
                line = pad(line, place) + label
        return line


@attrs.frozen
class StepLine:
    """One line: the text left of the bar, the bar, and the text right of it."""

    number: str
    name: str
    bar: str
    style: str
    figures: tuple[str, str, str]


class StepLines:
    """The content of the waterfall, independent of its width."""

    def __init__(
        self,
        job: JobRow,
        steps: Sequence[StepRow],
        attempts: Sequence[EndedAttempt],
        approvals: Sequence[ApprovalRow],
    ) -> None:
        """Requires a job that has started."""
        self._job = job
        self._steps = steps
        self._asked = {each.key: each for each in approvals}
        self._open = [each for each in approvals if each.decided_at is None]
        begins = [steps[0].started_at] if steps and steps[0].seq > 1 else [job.started_at]
        self.start: datetime = min([*begins, *(step.started_at for step in steps)])
        self._attempts = [each for each in attempts if each.ended_at >= self.start]
        end: datetime = job.finished_at or job.now
        self.length_s = (end - self.start).total_seconds()
        self._is_running = job.finished_at is None and job.heartbeat_at is not None

    @property
    def names(self) -> list[str]:
        """Return the texts left of the bars."""
        return [
            *(safe(step_label(step.key)) for step in self._steps),
            *(f"attempt {each.attempt} ended" for each in self._attempts),
            *(safe(step_label(each.key)) for each in self._open),
        ]

    @property
    def figures(self) -> list[tuple[str, str, str]]:
        """Return the texts right of the bars, with their headings."""
        waits = [("", WAITS, "")] if self._open else []
        return [("took", "tokens", "cost"), *waits, *(self._figures(step) for step in self._steps)]

    def drawn(self, axis: Axis) -> Iterator[StepLine]:
        """Yield steps and ends of attempts in order of time, then what runs now."""
        events = [
            *((step.finished_at, self._step(step, axis)) for step in self._steps),
            *((each.ended_at, _ended(each, axis)) for each in self._attempts),
        ]
        for _, line in sorted(events, key=lambda event: event[0]):
            yield line
        if self._is_running:
            since = max([self.start, *(at for at, _ in events)])
            now: datetime = self._job.now
            bar = axis.bar(since, now, Look.RUNNING)
            took = span((now - since).total_seconds())
            yield StepLine("", "running", bar, "run", (took, "", ""))
        for request in self._open:
            now = self._job.now
            bar = axis.bar(request.created_at, now, Look.WAIT)
            took = span((now - request.created_at).total_seconds())
            yield StepLine("", safe(step_label(request.key)), bar, "appr", (took, WAITS, ""))

    def _step(self, step: StepRow, axis: Axis) -> StepLine:
        if decided := self._decided(step):
            bar = axis.bar(decided[0].created_at, decided[1], Look.WAIT)
        else:
            bar = axis.bar(step.started_at, step.finished_at, Look.DONE)
        style = step_style(step.kind)
        name = safe(step_label(step.key))
        return StepLine(str(step.seq), name, bar, style, self._figures(step))

    def _decided(self, step: StepRow) -> tuple[ApprovalRow, datetime] | None:
        """Return the decision that a step is, and when it was made."""
        request = self._asked.get(step.key) if step.kind == StepKind.APPROVAL else None
        if request is None or request.decided_at is None:
            return None
        return request, request.decided_at

    def _figures(self, step: StepRow) -> tuple[str, str, str]:
        """Return duration and cost of a step; for a decision, how long it took and who made it."""
        decided = self._decided(step)
        if decided is None:
            return _figures(step)
        request, at = decided
        waited_s = (at - request.created_at).total_seconds()
        words = {ApprovalStatus.APPROVED: "ok", ApprovalStatus.DENIED: "no"}
        answer = words.get(request.status, request.status.lower())
        text = f"{answer} by {request.decided_by}" if request.decided_by else answer
        return span(waited_s), fit(safe(text), DECIDER_MAX), ""


def _ended(attempt: EndedAttempt, axis: Axis) -> StepLine:
    why = OUTCOMES.get(attempt.outcome, attempt.outcome)
    sign = ended_sign(attempt)
    mark = axis.mark(attempt.ended_at, sign.text)
    if width_of(mark) + 1 + width_of(why) <= axis.cells:
        mark = f"{mark} {why}"
    elif width_of(mark) > width_of(why) + 1:
        mark = pad(why, width_of(mark) - 2, right=True) + f" {sign.text}"
    return StepLine("", f"attempt {attempt.attempt} ended", mark, sign.style, ("", "", ""))


def _figures(step: StepRow) -> tuple[str, str, str]:
    took_s = (step.finished_at - step.started_at).total_seconds()
    used = tokens(step.usage) if step.usage else ""
    cost = money(step.cost_usd) if step.cost_usd is not None else ""
    return span(took_s), used, cost


def _tick(seconds: float) -> str:
    if seconds < MINUTE_S:
        return f"{seconds:g}s"
    return span(seconds).removesuffix(" 00s").removesuffix(" 00m").removesuffix(" 0h")
