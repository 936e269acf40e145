"""The pane beside the jobs: the state, its reason, what comes next, and the last error."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.jobs import ListedJob
from cortex.view.cells import Cell
from cortex.view.jobs import state_of
from cortex.view.phrases import NOTHING, age, money
from cortex.view.steps import numbered_step
from cortex_tui.render.job_rows import next_and_why, why_line
from cortex_tui.render.labelled import Line, labelled, said, titled, valued
from cortex_tui.render.words import countdown


def side_head(row: ListedJob) -> Cell:
    return Cell(safe(f"{short_id(row.id)}  {row.agent or row.type}"), "bold")


def side_lines(row: ListedJob, now: datetime, width: int) -> Iterator[Line]:
    """Yield the same labels for each job, so that they keep their places."""
    status, head = row.status, row.checkpoint
    cost = head.get("cost_usd")
    comes, reason = next_and_why(row, now)
    if status is JobStatus.FAILED:
        reason = row.error_code or ""  # the message has its own lines
    seen = state_of(row)
    state = f"{seen!s} {_took(row, now)}".rstrip()
    last = numbered_step(head["seq"], head["key"]) if head.get("seq") else ""
    error = row.error_message or row.last_error or ""
    for label, text, style in (
        ("state", state, seen.style),
        ("next", comes, ""),
        ("cost", "" if cost is None else money(Decimal(str(cost))), ""),
        ("attempt", f"{row.attempt}, retry {row.retry_count}/{row.max_retries}", ""),
        ("pod", row.pod or "", ""),
        ("queue", row.queue_name or "", ""),
        ("type", row.type, "dim"),
        ("age", age((now - row.created_at).total_seconds()), "dim"),
        ("last step", last, ""),
    ):
        yield from valued(label, text, width, style)
    yield from labelled(
        "why", reason or NOTHING, width, why_line(row, now).style if reason else "dim"
    )
    yield from titled("last error")
    yield from said(error, width, style="fail")


def _took(row: ListedJob, now: datetime) -> str:
    if row.started_at is None:
        return ""
    return countdown(((row.finished_at or now) - row.started_at).total_seconds())
