"""The page of one job: head, timeline, attempts that ended early, history, result."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

import attrs

from cortex.cli.jobs.job_outside import (
    approval_line,
    documents_of,
    effect_line,
    moment,
    signal_line,
)
from cortex.cli.screen.terminal import Terminal
from cortex.cli.screen.waterfall import waterfall
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.budget import OwnBudget
from cortex.domain.job import JobStatus
from cortex.domain.key_shapes import masked_value
from cortex.domain.phrases import rfc3339, short_id, span, utc_time
from cortex.domain.safe import safe
from cortex.store.effects import EffectRow
from cortex.store.facts import JobChange
from cortex.store.jobs import EndedAttempt, ShownJob, StepRow, SubstitutionRow, Transition
from cortex.store.signals import SignalRow
from cortex.view.cells import pad, width_of
from cortex.view.jobs import (
    OUTCOMES,
    ended_sign,
    move_text,
    progress,
    remark,
    retry_text,
    spent_text,
    state_cell,
    state_shown,
    took_s,
)
from cortex.view.phrases import age, clock_time, exact, since_s
from cortex.view.pods import place
from cortex.view.resources.facts import change_text
from cortex.view.resources.jobs import JOB
from cortex.view.steps import running_step, substitution_text

BLOCK_LINES_MAX: Final = 40
LABEL_CELLS: Final = 11
STATE_CELLS: Final = 10


@attrs.frozen(kw_only=True)
class JobRecord:
    """A job and its records."""

    job: ShownJob
    steps: Sequence[StepRow]
    attempts: Sequence[EndedAttempt]
    history: Sequence[Transition]
    changes: Sequence[JobChange] = ()
    """Lifecycle facts: changes by people, and budgets that the job waited for."""
    effects: Sequence[EffectRow] = ()
    """The newest first."""
    approvals: Sequence[ApprovalRow] = ()
    """Approval requests, the oldest first."""
    signals: Sequence[SignalRow] = ()
    """Those that were sent to it, and those that it received, the oldest first."""
    substitutions: Sequence[SubstitutionRow] = ()
    """Models that answered in the place of others."""

    @property
    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "job": JOB.document(self.job),
            "steps": self.steps,
            "attempts": self.attempts,
            "history": self.history,
            "changes": self.changes,
            "substitutions": self.substitutions,
            **documents_of(self.effects, self.approvals, self.signals),
        }


def page(record: JobRecord, terminal: Terminal) -> Iterator[str]:
    yield from _head(record.job, terminal)
    yield from _facts(record.job, terminal)
    yield from steps_lines(record, terminal)
    if record.substitutions:
        yield from _section("answered by other models", terminal)
        yield from (f"  {safe(substitution_text(each))}" for each in record.substitutions)
    if record.approvals:
        yield from _section("approvals", terminal)
        yield from (approval_line(each, terminal) for each in record.approvals)
    if record.signals:
        yield from _section("signals", terminal)
        yield from (signal_line(each, terminal) for each in record.signals)
    if record.effects:
        yield from _section("effects", terminal)
        yield from (effect_line(each, terminal) for each in reversed(record.effects))
    if record.attempts:
        yield from _section("attempts that ended early", terminal)
        yield from (_attempt(each, terminal) for each in record.attempts)
    yield from _section("history", terminal)
    lines = [(each.at, _transition(each, terminal)) for each in record.history]
    lines += [(each.at, _change(each, terminal)) for each in record.changes]
    yield from (line for _, line in sorted(lines, key=itemgetter(0)))
    if record.job.result is not None:
        yield from _section("result", terminal)
        yield from block(record.job.result, indent="  ")


def steps_lines(record: JobRecord, terminal: Terminal) -> Iterator[str]:
    """Yield the waterfall below an empty line; nothing for a job without steps and approvals."""
    shown = list(
        waterfall(
            record.job,
            record.steps,
            record.attempts,
            approvals=record.approvals,
            terminal=terminal,
        )
    )
    if shown and (record.steps or record.approvals):
        yield ""
        total = record.job.checkpoint.get("seq", 0)
        if total > len(record.steps):
            hidden = total - len(record.steps)
            yield terminal.paint(f"  … {hidden} earlier steps: --steps {total}", "dim")
        yield from shown


def _head(job: ShownJob, terminal: Terminal) -> Iterator[str]:
    agent = f" · {job.agent} v{job.agent_version}" if job.agent else ""
    left = f"job {short_id(job.id)}  {safe(job.type)}{safe(agent)}"
    cell = state_cell(job)
    took = took_s(job)
    right = cell.text + ("" if took is None else f"  {span(took)}")
    gap = max(2, min(terminal.width, 100) - width_of(left) - width_of(right))
    yield terminal.paint(left, "bold") + " " * gap + terminal.paint(right, cell.style)


def _facts(job: ShownJob, terminal: Terminal) -> Iterator[str]:
    facts = {
        "id": str(job.id),
        "submitted": _times(job, terminal),
        "attempt": _attempts(job),
        "progress": progress(job.checkpoint, job.cache_saved_usd),
        "runs": "" if job.running_step is None else running_step(job.running_step, job.now),
        "queue": safe(job.queue_name or ""),
        "tags": safe(", ".join(job.tags or ())),
        "payload": exact(job.payload),
        "shows": " · ".join(f"{key} {exact(each)}" for key, each in (job.state or {}).items()),
        "error": _error(job),
        "trace": job.trace_id,
        "schedule": _schedule(job),
        "budget": " · ".join(map(_own_budget, job.budgets)),
        "parent": f"child of {job.parent_id}" if job.parent_id else "",
        "children": f"cortex jobs tree {short_id(job.id)}" if job.has_children else "",
        "origin": f"goes on from {job.origin_id}" if job.origin_id else "",
        "cancelled": _cancellation(job),
        "now": remark(job) if not job.status.is_terminal else "",
    }
    for label, text in facts.items():
        if text:
            shown = terminal.paint(safe(text), "fail") if label == "error" else safe(text)
            yield f"  {terminal.paint(pad(label, LABEL_CELLS), 'dim')}{shown}"


def _own_budget(own: OwnBudget) -> str:
    who = "" if own.share_of is None else f", a share from job {short_id(own.share_of)}"
    return f"{spent_text(own)} spent{who}"


def _times(job: ShownJob, terminal: Terminal) -> str:
    if not terminal.is_tty:
        ends = {"started": job.started_at, "ended": job.finished_at}
        parts = [f"{label} {rfc3339(at)}" for label, at in ends.items() if at is not None]
        return " · ".join([rfc3339(job.created_at), *parts])
    parts = [f"{_ago(job, job.created_at)} ({clock_time(job.created_at)})"]
    if job.started_at is not None:
        waited_s = (job.started_at - max(job.created_at, job.run_at)).total_seconds()
        parts.append(f"started after {span(waited_s)}" if waited_s >= 1 else "started at once")
    if job.finished_at is not None:
        parts.append(f"ended {_ago(job, job.finished_at)}")
    return " · ".join(parts)


def _schedule(job: ShownJob) -> str:
    """Return which schedule submitted it, and for which instant."""
    if job.schedule is None or job.scheduled_for is None:
        return ""
    why = f", {job.schedule_reason}" if job.schedule_reason else ""
    return f"{job.schedule}, for {utc_time(job.scheduled_for)}{why}"


def _ago(job: ShownJob, at: datetime) -> str:
    passed = age(since_s(job, at))
    return "just now" if passed == "now" else f"{passed} ago"


def _attempts(job: ShownJob) -> str:
    if not job.attempt:
        return ""
    parts = [str(job.attempt)]
    if job.attempts_spent is not None:
        parts.append(f"{job.attempts_spent} of {job.worker_attempts} worker attempts used")
    if job.retry_count or job.rate_limit_count:
        parts.append(f"{job.retry_count} of {job.max_retries} retries used")
    if job.pod:
        parts.append(f"on pod {place(job.pod, job.code_version)}")
    if job.heartbeat_at is not None and job.finished_at is None:
        parts.append(f"heartbeat {_ago(job, job.heartbeat_at)}")
    return " · ".join(parts)


def _error(job: ShownJob) -> str:
    if not job.error_message:
        return ""
    parts = [job.error_message, job.error_class, job.error_code, job.error_source]
    return " · ".join(each for each in parts if each)


def _cancellation(job: ShownJob) -> str:
    if job.cancel_requested_at is None and job.cancelled_by is None:
        return ""
    reason = f": {job.cancel_reason}" if job.cancel_reason else ""
    return f"by {job.cancelled_by}{reason}"


def _section(title: str, terminal: Terminal) -> Iterator[str]:
    yield ""
    yield terminal.paint(f"  {title}", "dim")


def _attempt(attempt: EndedAttempt, terminal: Terminal) -> str:
    why = OUTCOMES.get(attempt.outcome, attempt.outcome)
    where = f" on {place(attempt.pod, attempt.code_version)}" if attempt.pod else ""
    parts = [f"{attempt.attempt}{where}: {why}", attempt.error_class, attempt.error]
    parts.append(retry_text(attempt))
    line = safe(" · ".join(each for each in parts if each))
    sign = ended_sign(attempt)
    glyph = terminal.paint(sign.text, sign.style)
    return f"  {moment(attempt.ended_at, terminal)}  {glyph} attempt {line}"


def _transition(row: Transition, terminal: Terminal) -> str:
    state = state_shown(row.new, row.metadata.get("waiting_on"))
    parts = []
    if row.new is JobStatus.RUNNING:
        where = f" on {place(row.pod, row.code_version)}" if row.pod else ""
        parts.append(f"attempt {row.attempt}{where}")
    waits = move_text(row.metadata, terminal.date)
    parts += [waits] if waits else []
    parts += [
        f"{key} {value}"
        for key, value in row.metadata.items()
        if value not in (None, "") and key not in _WORDED
    ]
    shown = terminal.paint(pad(str(state), STATE_CELLS), state.style)
    return f"  {moment(row.at, terminal)}  {shown}{safe(' · '.join(parts))}".rstrip()


_WORDED: Final = ("waiting_on", "approval", "expires_at")


def _change(fact: JobChange, terminal: Terminal) -> str:
    what = fact.subtype.replace("_", " ")
    source = f" {fact.source}" if fact.source else ""
    text = change_text(fact.data)
    line = safe(f"{what}{source}" + (f" {text}" if text else ""))
    dot = terminal.paint(pad("·", STATE_CELLS), "dim")
    return f"  {moment(fact.at, terminal)}  {dot}{line}"


def block(value: Any, *, indent: str) -> Iterator[str]:
    """Yield a JSON value for people: one line per key, texts with their line breaks."""
    lines = list(_block_lines(masked_value(value)))
    for line in lines[:BLOCK_LINES_MAX]:
        yield f"{indent}{line}".rstrip()
    if len(lines) > BLOCK_LINES_MAX:
        yield f"{indent}… {len(lines) - BLOCK_LINES_MAX} more lines: --json has them all"


def _block_lines(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from safe(value, newline="\n").split("\n")
        case dict() if value:
            for key, item in value.items():
                name = safe(str(key))
                if isinstance(item, str) and "\n" in item:
                    yield f"{name}:"
                    yield from (f"  {line}" for line in _block_lines(item))
                else:
                    yield f"{name}: {exact(item)}"
        case _:
            yield exact(value)
