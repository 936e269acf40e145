"""Schedules in words: what is wrong with one, when it fires, and what became of an instant."""

from collections.abc import Iterator
from typing import Final

from cortex.domain.phrases import span
from cortex.domain.schedules.schedule import Outcome, Overlap
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, TODAY, age, since_s, time_of_day

OVERLAPS: Final = {
    Overlap.SKIP: "skips an instant while an earlier job is open",
    Overlap.QUEUE: "runs one job after another",
    Overlap.CANCEL_PREVIOUS: "cancels the earlier job",
}

State = tuple[str, str, str]
"""A word for machines, a phrase for people (pass it through `safe`), and a style."""


def state_of(row: ScheduleRow) -> State:
    """Return the most important thing about a schedule."""
    return next(_states(row), ("ok", "ok", "done"))


def _states(row: ScheduleRow) -> Iterator[State]:
    """Yield what is remarkable, the most important first."""
    if row.paused_at is not None:
        when = time_of_day(row.paused_at, row.now)
        yield "paused", f'paused by {row.paused_by} {when} "{row.pause_reason}"', "warn"
    if row.problem is not None:
        yield "broken", f"cannot be evaluated: {row.problem}", "fail"
    if not row.is_served:
        yield "unserved", f"no living pod runs {needs(row)}", "fail"
    if not row.is_declared:
        yield "undeclared", "no living pod's code declares it", "warn"
    if row.last_outcome is Outcome.FAILED:
        yield "failing", f"not submitted: {row.last_error}", "fail"
    if row.has_missed and row.missed_at is not None:
        when = time_of_day(row.missed_at, row.now)
        count = "1 instant" if row.missed_count == 1 else f"{row.missed_count:,} instants, the last"
        yield "missed", f"missed {count} of {when}", "warn"
    if row.queued:
        yield "queued", f"{row.queued:,} wait for the job before", "warn"


def needs(row: ScheduleRow) -> str:
    """Return what a pod must be able to run."""
    return row.type if row.agent is None else f"agent {row.agent}"


def runs(row: ScheduleRow) -> str:
    return row.type if row.agent is None else f"{row.type} {row.agent}"


def next_text(row: ScheduleRow) -> str:
    """Return when it fires next: `in 2m 31s (14:00Z)`, on another day only its date and time."""
    if row.paused_at is not None or row.due_at is None:
        return NOTHING
    left_s = -since_s(row, row.due_at)
    if left_s <= 0:
        return "now"
    at = time_of_day(row.due_at, row.now)
    return f"in {span(left_s)} ({at})" if left_s < TODAY.total_seconds() else at


def last_text(row: ScheduleRow) -> str:
    """Return what became of its last instant: `2m ago completed`."""
    if row.last_instant is None or row.last_outcome is None:
        return NOTHING
    ago = age(max(0.0, since_s(row, row.last_instant)))
    word = outcome_word(row.last_outcome, row.last_status)
    return f"{ago} {word}" if ago == "now" else f"{ago} ago {word}"


def outcome_word(outcome: Outcome, status: str | None) -> str:
    """Return the state of an instant's job, or why it has none."""
    if outcome is Outcome.SUBMITTED:
        return "deleted" if status is None else str(status).lower().replace("_", " ")
    return {
        Outcome.QUEUED: "queued",
        Outcome.SKIPPED: "skipped",
        Outcome.MISSED: "missed",
        Outcome.FAILED: "not submitted",
    }[outcome]


def instant_cell(row: InstantRow) -> Cell:
    style = {
        Outcome.SUBMITTED: "",
        Outcome.QUEUED: "warn",
        Outcome.SKIPPED: "dim",
        Outcome.MISSED: "warn",
        Outcome.FAILED: "fail",
    }[row.outcome]
    word = outcome_word(row.outcome, row.status)
    how = " (triggered)" if row.is_manual else " (made up for)" if row.is_made_up else ""
    return Cell(word + how, style)


def instant_words(row: InstantRow) -> str | None:
    """Return why an instant has no job, or why its job is late; pass it through `safe`."""
    return row.error or row.reason
