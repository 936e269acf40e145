"""Describes jobs to people: state, progress, and why a job is in that state."""

import difflib
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.budget import OwnBudget, worded
from cortex.domain.canonical import canonical
from cortex.domain.effect import FREEZE, EffectStatus
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import STATE_WORDS, Wait, wait_of
from cortex.domain.known_tool import TRUST
from cortex.domain.phrases import short_id, span
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
from cortex.view.caching import hit_of, hit_text
from cortex.view.cells import Cell
from cortex.view.phrases import count, localised, money, since_s
from cortex.view.progress import bar
from cortex.view.why import needs_person

if TYPE_CHECKING:
    from cortex.store.codes import ServedType  # lists of jobs start without it

NAMES_MAX: Final = 12
"""Known job types that one line lists."""
OUTCOMES: Final = {
    "failed": "failed",
    "retry": "failed",
    "suspended": "suspended",
    "handed_back": "handed back by its pod",
    "misfit": "handed back: it does not fit its pod's code",
    "pod_died": "its pod died",
    "process_died": "its own process died",
    "lease_expired": "its pod fell silent",
}
"""Why an attempt ended before its job did."""


def unserved(job_type: str, served: "ServedType", *, is_known: bool = False) -> str | None:
    """Return why a job of this type waits for now, None if a ready pod has its type.

    `is_known`: the type exists, although no pod has had it yet.
    """
    if served.is_served:
        return None
    if served.timeout_s is not None or is_known:
        return f"no ready pod runs {job_type!r} yet"
    close = difflib.get_close_matches(job_type, served.others, n=1)
    known = ", ".join(served.others[:NAMES_MAX])
    more = ", …" if len(served.others) > NAMES_MAX else ""
    way_out = f"did you mean {close[0]!r}?" if close else f"known: {known}{more}"
    return f"no pod knows job type {job_type!r} ({way_out})"


def arguments_text(schema: Mapping[str, Any]) -> str:
    """Return the arguments of a job type on one line: `urls, note=null`; not safe yet."""
    required = schema.get("required", ())
    return ", ".join(
        name if name in required else f"{name}={_default(each)}"
        for name, each in schema.get("properties", {}).items()
    )


def _default(schema: Mapping[str, Any]) -> str:
    return canonical(schema["default"]) if "default" in schema else "…"


@attrs.frozen
class State:
    """How a state is displayed: never by colour alone."""

    glyph: str
    word: str
    style: str
    """Name of its colour; all states that wait for a person share one."""

    def __str__(self) -> str:
        return f"{self.glyph} {self.word}"


_GLYPHS: Final = {
    JobStatus.PENDING: "○",
    JobStatus.RUNNING: "●",
    JobStatus.WAITING_FOR_APPROVAL: "◆",
    JobStatus.RETRY: "↻",
    JobStatus.COMPLETED: "✓",
    JobStatus.FAILED: "✗",
    JobStatus.CANCELLED: "⊘",
}
_STATES: Final = {
    status: State(glyph, STATE_WORDS[status], STATE_WORDS[status])
    for status, glyph in _GLYPHS.items()
}
APPR: Final = STATE_WORDS[JobStatus.WAITING_FOR_APPROVAL]
_WAITS: Final = {
    Wait.ASKS: State("◆", Wait.ASKS, APPR),
    Wait.EFFECT: State("?", Wait.EFFECT, APPR),
    Wait.BUDGET: State("$", Wait.BUDGET, APPR),
    Wait.PERSON: State("!", Wait.PERSON, APPR),
    Wait.SLEEP: State("◔", Wait.SLEEP, STATE_WORDS[JobStatus.PENDING]),
    Wait.SIGNAL: State("◇", Wait.SIGNAL, STATE_WORDS[JobStatus.PENDING]),
    Wait.CHILD: State("▷", Wait.CHILD, STATE_WORDS[JobStatus.PENDING]),
    Wait.LIMIT: State("≡", Wait.LIMIT, STATE_WORDS[JobStatus.PENDING]),
    Wait.BATCH: State("▤", Wait.BATCH, STATE_WORDS[JobStatus.PENDING]),
    Wait.CODE: State("≠", Wait.CODE, APPR),
}
SHOWN: Final = (
    *(each for status, each in _STATES.items() if status is not JobStatus.WAITING_FOR_APPROVAL),
    *_WAITS.values(),
)
"""Every state that people see."""


def state_shown(status: JobStatus, waiting_on: str | None) -> State:
    """Return the display of a state; a job that waits for a person shows what it waits for."""
    wait = wait_of(status, waiting_on)
    return _STATES[status] if wait is None else _WAITS[wait]


def state_of(row: JobRow) -> State:
    return state_shown(row.status, row.waiting_on)


def state_cell(row: JobRow) -> Cell:
    """Return glyph and word of a job's state, with its retries."""
    state = state_of(row)
    is_retry = state.word == STATE_WORDS[JobStatus.RETRY]
    retries = f" {row.retry_count}/{row.max_retries}" if is_retry else ""
    return Cell(f"{state}{retries}", state.style)


def took_s(row: JobRow) -> float | None:
    """Return the seconds from a job's first start to its end or until now."""
    if row.started_at is None:
        return None
    return ((row.finished_at or row.now) - row.started_at).total_seconds()


def remark(row: JobRow) -> str:
    """Explain a job's state, or what comes next; "" when there is nothing to add."""
    return " · ".join(part for part in (_late(row), progress_bar(row), _remark(row)) if part)


def _late(row: JobRow) -> str:
    """Say that a listed job that is not over has missed its deadline."""
    if not isinstance(row, ListedJob) or row.due_by is None or row.status.is_terminal:
        return ""
    late_s = since_s(row, row.due_by)
    return f"late by {span(late_s)}" if late_s > 0 else ""


def progress_bar(row: JobRow) -> str:
    """Return how far a job has come that is not over, as its code says; "" if it says nothing."""
    return "" if row.progress is None or row.status.is_terminal else bar(row.progress)


def _remark(row: JobRow) -> str:  # noqa: PLR0911 -- a table
    if row.waiting_on == CODE:
        return " · ".join(part for part in when_and_which_code(row, row.now, span) if part)
    match row.status:
        case JobStatus.FAILED:
            return str(row.error_message)
        case JobStatus.CANCELLED:
            return f"by {row.cancelled_by}" if row.cancelled_by else ""
        case JobStatus.RETRY | JobStatus.WAITING_FOR_APPROVAL:
            return _remark_on_waiting(row)
        case JobStatus.PENDING:
            left_s = -since_s(row, row.run_at)
            return f"starts in {span(left_s)}" if left_s > 0 else str(row.why or "")
        case JobStatus.RUNNING:
            return _remark_on_running(row)
        case _:
            return ""


def when_and_which_code(
    row: JobRow, now: datetime, shown: Callable[[float], str]
) -> tuple[str, str]:
    """Return when a job fails that waits for code, and what it waits for."""
    what = row.why or f"waits for {named(CODE)}"
    if row.next_retry_at is None:
        return "", what
    left_s = (row.next_retry_at - now).total_seconds()
    return f"fails in {shown(left_s)}" if left_s > 0 else "fails now", what


def _remark_on_waiting(row: JobRow) -> str:
    waiting_on = row.waiting_on or ""
    if waiting_on.startswith(PERSON):
        what = needs_person(waiting_on.removeprefix(PERSON), row.last_error)
        return f"{what}; once that is fixed: cortex jobs retry {short_id(row.id)}"
    if waiting_on.startswith(TRUST):
        return f"waits for {named(waiting_on)}"
    if text := _remark_on_awaited(row):
        return text
    if row.next_retry_at is None:
        return f"waits for {named(waiting_on) if waiting_on else 'a person'}"
    if waiting_on == BATCH:
        return row.why or f"waits for {named(BATCH)}"
    left_s = (row.next_retry_at - row.now).total_seconds()
    if waiting_on == SLEEP:
        text, does = row.why or "", "wakes"
    elif waiting_on.startswith((SIGNAL, CHILD)):
        text, does = row.why or f"waits for {named(waiting_on)}", "times out"
    else:
        text, does = row.why or (f"waits for {named(waiting_on)}" if waiting_on else ""), "retries"
    when = f"{does} in {span(left_s)}" if left_s > 0 else f"{does} now"
    return f"{when} · {text}" if text else when


def _remark_on_awaited(row: JobRow) -> str:
    """Describe what the job waits for and what a person can do; "" if it no longer waits."""
    match row.awaited:
        case ApprovalWait(status=ApprovalStatus.PENDING) as observed:
            left_s = -since_s(row, observed.expires_at)
            over = f"expires in {span(left_s)}" if left_s > 0 else "expired"
            return f"{observed.words}, {over}: cortex approvals show {short_id(observed.id)}"
        case ApprovalWait() as observed:
            return observed.words
        case EffectWait(status=EffectStatus.UNKNOWN) as observed:
            return f"{observed.words}; see cortex effects show {short_id(observed.id)}"
        case FreezeWait() as observed:
            return localised(observed.words)
        case QuotaWait() as observed if observed.is_used_up or _is_later(row):
            return f"{observed.words}, resets in {span(-since_s(row, observed.resets_at))}"
        case _:
            return ""


def _is_later(row: JobRow) -> bool:
    return row.next_retry_at is not None and row.next_retry_at > row.now


class EndedEarly(Protocol):
    """An attempt that ended before its job."""

    @property
    def outcome(self) -> str: ...
    @property
    def ended_at(self) -> datetime: ...
    @property
    def due_at(self) -> datetime | None: ...
    @property
    def error_source(self) -> str | None: ...
    @property
    def retry_count(self) -> int | None: ...


def ended_sign(attempt: EndedEarly) -> Cell:
    """Return the glyph of an attempt that ended before its job: waiting is not a failure."""
    if attempt.outcome == "misfit":
        state = state_shown(JobStatus.RETRY, CODE)
        return Cell(state.glyph, state.style)
    if attempt.outcome != "suspended":
        return Cell("✗", "fail")
    is_for_person = attempt.due_at is None
    status = JobStatus.WAITING_FOR_APPROVAL if is_for_person else JobStatus.RETRY
    state = state_shown(status, attempt.error_source)
    return Cell(state.glyph, state.style)


def move_text(metadata: dict[str, Any], at: Callable[[datetime], str]) -> str:
    """Describe what a job waited for when its state changed; "" for nothing.

    `at` formats instants.
    """
    if not metadata.get("waiting_on"):
        return ""
    text = f"waits for {named(metadata['waiting_on'])}"
    if metadata.get("expires_at"):
        text += f", expires {at(datetime.fromisoformat(metadata['expires_at']))}"
    return text


def retry_text(attempt: EndedEarly) -> str:  # noqa: PLR0911 -- a table
    """Return what follows an attempt, a worker attempt or a retry, and when."""
    due_at, ended_at = attempt.due_at, attempt.ended_at
    source = attempt.error_source or ""
    if attempt.outcome == "suspended" and source.startswith((SIGNAL, CHILD)):
        over = "" if due_at is None else f", at most {span((due_at - ended_at).total_seconds())}"
        return f"waits for {named(source)}{over}, no retry used"
    if due_at is None:
        return "a person decides"
    wait_s = (due_at - ended_at).total_seconds()
    after = f" after {span(wait_s)}" if wait_s >= 1 else " at once"
    match attempt.outcome:
        case "retry":
            return f"retry {attempt.retry_count}{after}"
        case "suspended" if attempt.error_source == FREEZE:
            return "goes on when effects may begin, no retry used"
        case "suspended" if attempt.error_source == BATCH:
            return "goes on when its batch is over, no retry used"
        case "suspended":
            does = "wakes" if attempt.error_source == SLEEP else "goes on"
            return f"{does}{after}, no retry used"
        case "misfit":
            return "goes on under code that fits it, nothing counted"
        case "failed":
            return f"next worker attempt{after}"
        case _:
            return ""


def progress(head: dict[str, Any], saved_usd: Decimal | None = None) -> str:
    """Summarise a checkpoint head: steps, tokens, cost, and what the prompt cache saved."""
    parts = [f"{head.get('seq', 0)} steps" if head.get("seq") != 1 else "1 step"]
    if "input_tokens" in head:
        parts.append(f"{count(head['input_tokens'])} tokens in, {count(head['output_tokens'])} out")
        parts.append(money(head["cost_usd"]))
    if (share := hit_of(head)) is not None:
        parts.append(hit_text(share, saved_usd))
    return " · ".join(parts)


def is_silent(row: JobRow, silent_s: float) -> bool:
    """Return whether a running job's heartbeat is older than its pod's settings allow.

    Without a pod record every heartbeat is too old: no pod runs the job.
    """
    return row.silent_after_s is None or silent_s > row.silent_after_s


def _remark_on_running(row: JobRow) -> str:
    if row.cancel_requested_at is not None:
        return f"cancel requested by {row.cancelled_by}"
    if row.heartbeat_at is None:
        return "waits for a pod"
    silent_s = since_s(row, row.heartbeat_at)
    return f"! no heartbeat for {span(silent_s)}" if is_silent(row, silent_s) else ""


def spent_text(own: OwnBudget) -> str:
    """Say how much of a job's own budget is spent: `$0.31 of its $0.50`."""
    return f"{worded(own.spent, own.unit)} of its {worded(own.limit_amount, own.unit)}"
