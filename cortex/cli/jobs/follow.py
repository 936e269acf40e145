"""Following a job: its facts for people, and its current activity in one line.

cursor = Cursor()
while True:
    seen = await port(snapshot, job_id, cursor)
    printer.print(seen.facts)
    cursor = seen.cursor
    if seen.is_over:
        break
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, assert_never

from cortex.cli.jobs.facts import Claimed, Fact, at_of
from cortex.cli.screen.terminal import Terminal
from cortex.domain.job import JobStatus
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.jobs import EndedAttempt, FollowedJob, FollowedStep, Transition
from cortex.view.cells import fit, pad, width_of
from cortex.view.jobs import (
    OUTCOMES,
    ended_sign,
    move_text,
    progress,
    remark,
    retry_text,
    state_of,
    state_shown,
)
from cortex.view.phrases import exact, money, since_s, tokens
from cortex.view.steps import step_label

NAME_CELLS: Final = 44
NAME_CELLS_MIN: Final = 12
FIGURES_CELLS: Final = len("model  12.3s  45.6k→1.2k tokens  $0.0123")
WORD_CELLS: Final = 9
ZONE_CELLS_MAX: Final = 5
LEAD_CELLS: Final = len("12:34:56.7") + ZONE_CELLS_MAX + 2 + WORD_CELLS + 2


class FactPrinter:
    """Prints facts, one line each."""

    def __init__(self, terminal: Terminal, *, prefix: str = "") -> None:
        """`prefix` distinguishes several jobs."""
        self._terminal = terminal
        self._prefix = prefix

    def print(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self._terminal.write(self.line(fact))
        self._terminal.flush()

    def print_ending(self, job: FollowedJob) -> None:
        """Print how a job ended, with its cost and result, instead of its last fact."""
        state = state_of(job)
        ended_at = job.finished_at or job.now
        took_s = (ended_at - (job.started_at or job.created_at)).total_seconds()
        gave = remark(job) if job.result is None else exact(job.result)
        text = safe(" · ".join(filter(None, (span(took_s), progress(job.checkpoint), gave))))
        if self._terminal.is_tty:
            text = fit(text, self._terminal.width - LEAD_CELLS)
        self._terminal.write(self._line(ended_at, str(state), state.style, text))
        self._terminal.flush()

    def print_why(self, job: FollowedJob, brief: str) -> None:
        """Print what keeps a job from running, where there is no live line to show it."""
        state = state_of(job)
        self._terminal.write(self._line(job.now, str(state), state.style, safe(brief)))
        self._terminal.flush()

    def line(self, fact: Fact) -> str:
        return self._line(at_of(fact), *self._summary(fact))

    def _line(self, at: datetime, sign: str, style: str, text: str) -> str:
        paint = self._terminal.paint
        lead = f"{paint(self._terminal.clock(at), 'dim')}  {self._prefix}"
        return f"{lead}{paint(pad(sign, WORD_CELLS), style)}  {text}".rstrip()

    def _summary(self, fact: Fact) -> tuple[str, str, str]:
        match fact:
            case Transition():
                state = state_shown(fact.new, fact.metadata.get("waiting_on"))
                return str(state), state.style, safe(self._move_text(fact))
            case Claimed():
                text = f"attempt {fact.attempt}" + (f" on {fact.pod}" if fact.pod else "")
                return "● run", "run", safe(f"{text} goes on")
            case FollowedStep(chunk=str() as chunk):
                return f"» step {fact.seq}", "", safe(chunk)
            case FollowedStep():
                return f"+ step {fact.seq}", "", self._step_text(fact)
            case EndedAttempt():
                sign = ended_sign(fact)
                return f"{sign.text} attempt", sign.style, safe(_ending_text(fact))
            case _:
                assert_never(fact)

    def _move_text(self, fact: Transition) -> str:
        parts = []
        if fact.new is JobStatus.RUNNING:
            parts.append(f"attempt {fact.attempt}" + (f" on {fact.pod}" if fact.pod else ""))
        if waits := move_text(fact.metadata, self._terminal.date):
            parts.append(waits)
        if fact.new is JobStatus.FAILED:
            parts.append(str(fact.metadata.get("error")))
        if fact.new is JobStatus.CANCELLED and fact.metadata.get("by"):
            reason = fact.metadata.get("reason")
            parts.append(f"by {fact.metadata['by']}" + (f": {reason}" if reason else ""))
        return " · ".join(parts)

    def _step_text(self, fact: FollowedStep) -> str:
        cells = self._name_cells()
        name = pad(fit(safe(step_label(fact.key)), cells), cells)
        took_s = (fact.finished_at - fact.started_at).total_seconds()
        figures = f"{pad(fact.kind, 5)} {pad(span(took_s), 6, right=True)}"
        if fact.usage:
            figures += f"  {tokens(fact.usage)} tokens"
        if fact.cost_usd:
            figures += f"  {money(fact.cost_usd)}"
        return f"{name}  {self._terminal.paint(figures, 'dim')}"

    def _name_cells(self) -> int:
        """Return the width of names: on a terminal, the figures behind them stay on the line."""
        if not self._terminal.is_tty:
            return NAME_CELLS
        taken = LEAD_CELLS + width_of(self._prefix) + 2 + FIGURES_CELLS
        return max(NAME_CELLS_MIN, min(NAME_CELLS, self._terminal.width - taken))


def status_line(job: FollowedJob, terminal: Terminal) -> str:
    """Return the job's current activity in one line that fits the terminal."""
    state = state_of(job)
    since = job.started_at or job.created_at
    parts = [span(since_s(job, since)), progress(job.checkpoint)]
    if job.pod:
        parts.append(f"attempt {job.attempt} on {job.pod}")
    parts.append(remark(job))
    text = fit(safe(" · ".join(each for each in parts if each)), terminal.width - WORD_CELLS - 2)
    return f"{terminal.paint(str(state), state.style)} {text}"


def _ending_text(fact: EndedAttempt) -> str:
    text = f"{fact.attempt}" + (f" on {fact.pod}" if fact.pod else "")
    text += f" ended: {OUTCOMES.get(fact.outcome, fact.outcome)}"
    if fact.error:
        text += f": {fact.error}"
    again = retry_text(fact)
    return f"{text} · {again}" if again else text
