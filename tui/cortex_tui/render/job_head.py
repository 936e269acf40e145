"""The head of a job: its identity, state and cost; below it the reason and what comes next."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.budget import WAITING_PREFIX, Unit, worded
from cortex.domain.effect import EffectStatus
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import Wait, wait_of
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.domain.waiting import ApprovalWait, EffectWait
from cortex.store.job_screen import WatchedBudget, WatchedJob
from cortex.view.caching import hit_of, hit_text
from cortex.view.cells import Cell
from cortex.view.jobs import is_silent, state_of
from cortex.view.phrases import day_time, money
from cortex.view.steps import numbered_step, running_step
from cortex_tui.model.step_list import StepList
from cortex_tui.palette import Palette
from cortex_tui.render.job_rows import why, with_bar
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown

GAP: Final = 3
OTHERS: Final = (Wait.ASKS, Wait.SLEEP, Wait.SIGNAL, Wait.CHILD, Wait.BATCH, Wait.CODE, Wait.PERSON)
"""Waits of jobs in RETRY that are no retry."""


def state_strip(row: WatchedJob | None, now: datetime, palette: Palette, width: int) -> Strip:
    """Return the first line; empty until the job was read."""
    if row is None:
        return Strip.blank(width)
    parts = [Segment(" ")]
    for cell in head_line(row, now, width):
        parts += [Segment(cell.text, palette[cell.style]), Segment(" " * GAP)]
    return Strip(parts).adjust_cell_length(width)


def why_strip(row: WatchedJob | None, now: datetime, palette: Palette, width: int) -> Strip:
    """Return the second line; empty until the job was read."""
    if row is None:
        return Strip.blank(width)
    cell = why_line(row, now)
    text = with_bar(row, cell.text)
    return Strip([Segment(fit(f" {safe(text)}", width), palette[cell.style])])


def no_steps(row: WatchedJob | None) -> str:
    """Return why there is no step to show."""
    if row is None:
        return "reading …"
    return "no step is recorded yet" if row.finished_at is None else "no step was recorded"


def steps_range(steps: StepList) -> Cell:
    """Return which steps are loaded, unless all are."""
    if steps.first == 1 and steps.has_end:
        return Cell("")
    return Cell(f"steps {steps.first:,} to {steps.last:,} of {steps.newest:,} ", "dim")


def head_line(row: WatchedJob, now: datetime, width: int) -> list[Cell]:
    """Return the pieces that fit; after the state, long pieces leave first."""
    kept: list[Cell] = []
    room = width - 1
    for cell in _pieces(row, now):
        taken = cell_len(cell.text) + GAP
        if taken <= room + GAP:
            kept.append(cell)
            room -= taken
    return kept


def _pieces(row: WatchedJob, now: datetime) -> Iterator[Cell]:
    status = row.status
    yield Cell(f"job {short_id(row.id)}", "bold")
    version = f" v{row.agent_version}" if row.agent and row.agent_version else ""
    yield Cell(safe(f"{row.agent or row.type}{version}"))
    yield _state(row, status, now)
    beat: Cell | None = None
    if status is JobStatus.RUNNING and row.heartbeat_at is not None:
        beat = _heartbeat(row, (now - row.heartbeat_at).total_seconds())
        if beat.style == "alarm":
            yield beat
    if cost := _cost(row):
        yield _cost_cell(cost, row)
    if (share := hit_of(row.checkpoint)) is not None:
        yield Cell(hit_text(share, row.cache_saved_usd), "dim")
    if row.pod and row.finished_at is None:
        yield Cell(safe(f"pod {row.pod}"), "dim")
    if beat is not None and beat.style != "alarm":
        yield beat
    if row.attempt:
        yield Cell(f"attempt {row.attempt}", "dim")
    if row.retry_count and status is not JobStatus.RETRY:
        yield Cell(f"retry {row.retry_count}/{row.max_retries}", "dim")
    yield from _kin(row)


def _kin(row: WatchedJob) -> Iterator[Cell]:
    if row.parent_id is not None:
        yield Cell(f"child of {short_id(row.parent_id)}", "dim")
    if row.has_children:
        yield Cell("has children", "dim")
    if row.origin_id is not None:
        yield Cell(f"origin {short_id(row.origin_id)}", "dim")


def _state(row: WatchedJob, status: JobStatus, now: datetime) -> Cell:
    state = state_of(row)
    words = str(state)
    if status is JobStatus.RETRY and wait_of(status, row.waiting_on) not in (
        Wait.CODE,
        Wait.PERSON,
    ):
        words += f" {row.retry_count}/{row.max_retries}"
    elif row.started_at is not None:
        took_s = ((row.finished_at or now) - row.started_at).total_seconds()
        words += f" {countdown(took_s)}"
    return Cell(words, state.style)


def _heartbeat(row: WatchedJob, silent_s: float) -> Cell:
    freed_after_s = row.zombie_s or 0.0  # no zombie session holds the job of a pod without a row
    if silent_s >= freed_after_s:
        return Cell(f"✗ {silent_s:.0f}s zombie", "alarm")
    if is_silent(row, silent_s):
        return Cell(f"! heartbeat {silent_s:.0f}s", "alarm")
    return Cell(f"heartbeat {max(0.0, silent_s):2.0f}s/{freed_after_s:.0f}s", "dim")


def _cost(row: WatchedJob) -> str:
    cost = row.checkpoint.get("cost_usd")
    spent = None if cost is None else money(Decimal(str(cost)))
    limit = tightest(row)
    if limit is None:
        return spent or ""
    used = worded(limit.spent, limit.unit)
    return f"{used} of {worded(limit.limit_amount, limit.unit)}"


def _cost_cell(cost: str, row: WatchedJob) -> Cell:
    """Return the cost, as an alert when the budget is used up."""
    limit = tightest(row)
    is_spent = limit is not None and limit.spent >= limit.limit_amount
    return Cell(cost, "alarm" if is_spent else "dim")


def tightest(row: WatchedJob) -> WatchedBudget | None:
    """Return the limiting budget: the one that the job waits for, else the one with least left."""
    budgets = row.budgets
    if waiting := [each for each in budgets if each.name == _budget(row)]:
        return waiting[0]
    in_money = [each for each in budgets if each.unit == Unit.USD]
    return min(in_money or budgets, key=lambda each: each.limit_amount - each.spent, default=None)


def _budget(row: WatchedJob) -> str:
    """Return the name of the budget that the job waits for, or ""."""
    on = row.waiting_on or ""
    return on.removeprefix(WAITING_PREFIX) if on.startswith(WAITING_PREFIX) else ""


def why_line(row: WatchedJob, now: datetime) -> Cell:
    """Return why the job has its state, when that changes, and which key helps."""
    status = row.status
    if status is JobStatus.RETRY and wait_of(status, row.waiting_on) not in OTHERS:
        return Cell(safe(_retry(row, now)), "retry")
    if status is JobStatus.RUNNING and row.cancel_requested_at is None:
        return Cell(safe(_under_way(row, now)), "dim")
    text = why(row, now)
    if (awaited := gate(row)) is not None:
        when, dot, what = (
            ("", "", text) if isinstance(awaited, EffectWait) else text.partition(" · ")
        )
        return Cell(safe(f"{when}{dot}a opens it · {what}"), "appr")
    if status is JobStatus.WAITING_FOR_APPROVAL and _budget(row):
        return Cell(safe(f"budget {_budget(row)} is spent · B raises it"), "appr")
    if status is JobStatus.FAILED:
        code = row.error_code or row.error_class
        return Cell(safe(f"{code} · {text}" if code and code not in text else text), "fail")
    if status is JobStatus.CANCELLED and row.cancel_reason:
        text += f": {row.cancel_reason}"
    return Cell(safe(text), "dim")


def _retry(row: WatchedJob, now: datetime) -> str:
    parts = [f"retry {row.retry_count}/{row.max_retries}"]
    has_error = bool(row.why)  # it includes the error of the last attempt
    if row.last_error_code and not has_error:
        parts.append(row.last_error_code)
    when, dot, what = why(row, now).partition(" · ")
    at = "" if row.next_retry_at is None else f" ({day_time(row.next_retry_at)})"
    parts.append(f"{when}{at}{dot}{what}")
    if row.breaker_state is not None and f"breaker {row.waiting_on}" not in what:
        parts.append(f"breaker {row.waiting_on} {row.breaker_state.lower()}")
    if row.last_error and row.last_error not in what:
        parts.append(row.last_error)
    return " · ".join(parts)


def _under_way(row: WatchedJob, now: datetime) -> str:
    if row.running_step is not None:
        return f"in step {running_step(row.running_step, now)}"
    head = row.checkpoint
    return (
        f"last step {numbered_step(head['seq'], head['key'])}"
        if head.get("seq")
        else "no step is recorded yet"
    )


def gate(row: WatchedJob) -> ApprovalWait | EffectWait | None:
    """Return the request or unknown effect that the job waits for, if a person can decide it."""
    match row.awaited:
        case ApprovalWait(status=ApprovalStatus.PENDING) as wait:
            return wait
        case EffectWait(status=EffectStatus.UNKNOWN) as wait:
            return wait
        case _:
            return None
