"""A job on one line: the columns of the list, and the reason for its state."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from decimal import Decimal
from typing import Final

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.job import JobStatus
from cortex.domain.known_tool import TRUST
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.domain.waiting import (
    BATCH,
    CHILD,
    CODE,
    PERSON,
    SIGNAL,
    SLEEP,
    ApprovalWait,
    EffectWait,
    FreezeWait,
    QuotaWait,
    named,
)
from cortex.store.jobs import JobRow, ListedJob
from cortex.view.cells import Cell
from cortex.view.jobs import is_silent, progress_bar, state_of, when_and_which_code
from cortex.view.phrases import NOTHING, age, localised, money
from cortex.view.resources.jobs import JOBS
from cortex.view.steps import step_label
from cortex.view.why import needs_person
from cortex_tui.render.table import Column, column
from cortex_tui.render.words import countdown, short

NONE: Final = Cell(NOTHING, "dim")
ALARM: Final = "!"


def why(row: JobRow, now: datetime) -> str:
    """Return why a job has its state, or what comes next; not safe yet.

    Times come first, so that a narrow list does not cut them off.
    """
    return " · ".join(part for part in next_and_why(row, now) if part)


def next_and_why(row: JobRow, now: datetime) -> tuple[str, str]:  # noqa: PLR0911 -- a table
    """Return when the job continues, if its wait has an end, and the reason; not safe yet."""
    if row.waiting_on == CODE:
        return when_and_which_code(row, now, countdown)
    match row.status:
        case JobStatus.FAILED:
            return "", str(row.error_message or row.error_code or "")
        case JobStatus.CANCELLED:
            return "", f"by {row.cancelled_by}" if row.cancelled_by else ""
        case JobStatus.RETRY | JobStatus.WAITING_FOR_APPROVAL:
            return _waiting(row, now)
        case JobStatus.PENDING if row.run_at > now:
            return f"starts in {_left(row.run_at, now)}", ""
        case JobStatus.PENDING:
            return "", row.why or ""
        case JobStatus.RUNNING:
            return "", _running(row, now)
        case _:
            return "", ""


def job_words(row: JobRow) -> str:
    """Name a job in a question; not safe yet."""
    what = row.agent or row.type
    return f"{what} {short_id(row.id)}, {state_of(row)!s}"


def status_line(row: JobRow, now: datetime) -> list[Cell]:
    """Return the identity and state of a job, in pieces."""
    state = state_of(row)
    parts = [
        Cell(short_id(row.id), "bold"),
        Cell(safe(row.agent or row.type)),
        Cell(str(state), state.style),
        Cell(f"attempt {row.attempt} · retry {row.retry_count}/{row.max_retries}", "dim"),
    ]
    if row.started_at is not None:
        took_s = ((row.finished_at or now) - row.started_at).total_seconds()
        parts.append(Cell(countdown(took_s), "dim"))
    if row.pod:
        parts.append(Cell(safe(f"pod {row.pod}"), "dim"))
    cost = row.checkpoint.get("cost_usd")
    if cost is not None:
        parts.append(Cell(money(Decimal(str(cost))), "dim"))
    return parts


def why_line(row: JobRow, now: datetime) -> Cell:
    """Return the reason for its state as one cell."""
    text = why(row, now)
    is_alarming = row.status is JobStatus.RUNNING and text.startswith(ALARM)
    style = "alarm" if is_alarming else "fail" if row.error_message else "dim"
    return Cell(safe(with_bar(row, text)), style)


def with_bar(row: JobRow, text: str) -> str:
    """Return a text behind the bar of a job that says how far it has come."""
    return " · ".join(part for part in (progress_bar(row), text) if part)


def _waiting(row: JobRow, now: datetime) -> tuple[str, str]:
    on = row.waiting_on or ""
    if on.startswith(PERSON):
        return "", needs_person(on.removeprefix(PERSON), row.last_error)
    if on.startswith(TRUST):  # the time of its next look would hide who has to do something
        return "", f"waits for {named(on)}"
    match row.awaited:
        case ApprovalWait(status=ApprovalStatus.PENDING) as wait:
            is_open = wait.expires_at > now
            left = f"expires {_left(wait.expires_at, now)}" if is_open else "expired"
            return left, wait.words
        case ApprovalWait() | EffectWait() | FreezeWait() | QuotaWait() as wait:
            return "", localised(wait.words)
        case _:
            pass
    due_at = row.next_retry_at
    what = row.why or (f"waits for {named(on)}" if on else "")
    if due_at is None or on == BATCH:
        return "", what or "waits for a person"
    is_outside = on.startswith((SIGNAL, CHILD))
    does = "wakes" if on == SLEEP else "times out" if is_outside else "retries"
    return f"{does} in {_left(due_at, now)}" if due_at > now else f"{does} now", what


def _running(row: JobRow, now: datetime) -> str:
    if row.cancel_requested_at is not None:
        return f"cancel requested by {row.cancelled_by}"
    if row.heartbeat_at is None:
        return "waits for a pod"
    silent_s = (now - row.heartbeat_at).total_seconds()
    if is_silent(row, silent_s):
        return f"{ALARM} silent {countdown(silent_s)}"
    return f"heartbeat {age(silent_s)}"


def is_problem(row: JobRow, now: datetime) -> bool:
    """Return whether a person should look: it failed, waits for a person, or its pod is silent."""
    if row.waiting_on == CODE:
        return True
    match row.status:
        case JobStatus.FAILED:
            return True
        case JobStatus.RETRY | JobStatus.WAITING_FOR_APPROVAL:
            return (row.waiting_on or "").startswith((PERSON, TRUST))
        case JobStatus.RUNNING if row.heartbeat_at is not None:
            return is_silent(row, (now - row.heartbeat_at).total_seconds())
        case _:
            return False


def _left(instant: datetime, now: datetime) -> str:
    return countdown((instant - now).total_seconds())


def _what(row: JobRow, _: datetime) -> Cell:
    return Cell(safe(row.agent)) if row.agent else Cell(safe(row.type), "dim")


def _state(row: JobRow, _: datetime) -> Cell:
    state = state_of(row)
    return Cell(str(state), state.style)


def _step(row: JobRow, _: datetime) -> Cell:
    head = row.checkpoint
    return Cell(safe(step_label(head["key"]))) if head.get("seq") else NONE


def _retries(row: JobRow, _: datetime) -> Cell:
    text = f"{short(row.retry_count)}/{short(row.max_retries)}"
    return Cell(text, "" if row.retry_count else "dim")


def _age(row: JobRow, now: datetime) -> Cell:
    return Cell(age((now - row.created_at).total_seconds()), "dim")


COLUMNS: Final[Sequence[Column[ListedJob]]] = (
    column(JOBS, "id", width=7, is_fixed=True),
    Column(title="agent", width=16, cell=_what, is_fixed=True),
    Column(title="state", width=8, cell=_state, is_fixed=True),
    Column(title="step", width=18, cell=_step, spare=2, is_fixed=True),
    column(JOBS, "attempt", width=3, spare=4, is_fixed=True),
    Column(title="retry", width=5, cell=_retries, is_right=True, spare=1, is_fixed=True),
    column(JOBS, "cost_usd", width=8, spare=3, is_fixed=True),
    Column(title="age", width=4, cell=_age, is_right=True),
    column(JOBS, "pod", width=10, spare=5, is_fixed=True),
    column(JOBS, "type", width=14, spare=1, is_fixed=True),
    column(JOBS, "queue_name", width=12, spare=1, is_fixed=True),
    column(JOBS, "tenant", width=10, spare=1, is_fixed=True),
    Column(title="why / next", width=18, cell=why_line, grows=True),
)
OPTIONAL_COLUMNS: Final = ("step", "att", "retry", "cost", "age", "pod", "type", "queue", "tenant")
"""Titles of the optional columns."""
SHOWN_COLUMNS: Final = frozenset(OPTIONAL_COLUMNS[:6])
"""The default."""


def job_columns(shown: AbstractSet[str]) -> Sequence[Column[ListedJob]]:
    """Return the columns of the list, including the chosen optional ones."""
    return [each for each in COLUMNS if each.title in shown or each.title not in OPTIONAL_COLUMNS]
