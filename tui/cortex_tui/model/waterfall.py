"""The rows in a job's waterfall: its steps, attempts that ended early, and running work.

A tool call stands below the model answer that requested it, and can be folded into it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import attrs

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.effect import EffectStatus
from cortex.domain.job import JobStatus, StepKind
from cortex.domain.usage import Usage
from cortex.store.job_screen import WatchedApproval, WatchedEffect, WatchedJob, WatchedStep
from cortex.store.jobs import EndedAttempt
from cortex.view.cells import Cell
from cortex.view.jobs import ended_sign
from cortex.view.waterfall import step_style

RUNNING_KEY: Final = ("running", "")
ENDINGS: Final = {
    "failed": "failed",
    "retry": "failed",
    "suspended": "waits",
    "handed_back": "handed back",
    "pod_died": "pod died",
    "process_died": "process died",
    "lease_expired": "pod fell silent",
}
"""Why an attempt ended before its job, in a few words."""
CALM_ENDINGS: Final = ("suspended", "handed_back")
DECISIONS: Final = {ApprovalStatus.APPROVED: "ok", ApprovalStatus.DENIED: "no"}
NOT_DONE: Final = (EffectStatus.UNKNOWN, EffectStatus.FAILED, EffectStatus.ABANDONED)


@attrs.frozen(kw_only=True)
class WaterfallRow:
    """One line; texts come from jobs and are not safe yet."""

    key: tuple[str, int | str]
    """The identity of the row, to which the cursor is pinned."""
    name: str
    kind: str
    style: str
    began: datetime
    ended: datetime | None
    """None: it is not over."""
    number: int | None = None
    tokens: tuple[int, int] | None = None
    """Tokens read and written."""
    cost: Decimal | None = None
    sign: str = ""
    """Stands for the row where there is no bar."""
    note: str = ""
    is_wait: bool = False
    """A wait, drawn as a light bar."""
    is_mark: bool = False
    """It happened at one instant."""
    is_problem: bool = False
    depth: int = 0
    hidden: int | None = None
    """The number of rows folded into it; 0: it can be folded; None: it has no rows below."""
    step_key: str = ""
    """The key of its step, or ""."""
    attempt: int = 0
    since: int = 0
    """Of a step: the attempt that ran the previous step, from which on this one was tried."""


def rows_of(
    job: WatchedJob, steps: Sequence[WatchedStep], *, folded: frozenset[int], saying: str = ""
) -> list[WaterfallRow]:
    """Return the rows in order of time.

    `folded`: numbers of answers whose calls are hidden. `saying`: the step whose model is
    streaming.
    """
    asked = {each.key: each for each in job.approvals}
    effects = {each.key: each for each in job.effects}
    rows = _nested(list(_stepped(steps, asked, effects)), folded)
    since = steps[0].started_at if steps and steps[0].seq > 1 else None
    for ended in endings(job):
        if since is None or ended.ended_at >= since:
            _insert(rows, _ending(ended))
    return [*rows, *_going_on(job, steps, asked, effects, saying)]


def endings(job: WatchedJob) -> Sequence[EndedAttempt]:
    """Return how attempts ended before their job did, and the one that failed the job.

    The last one has no row in the record of attempts: it is the end of the job itself.
    """
    known: Sequence[EndedAttempt] = job.attempts
    is_told = any(each.attempt == job.attempt and each.error for each in known)
    if job.status is not JobStatus.FAILED or job.finished_at is None or is_told:
        return known
    last = EndedAttempt(
        attempt=job.attempt,
        outcome="failed",
        ended_at=job.finished_at,
        due_at=None,
        error=job.error_message,
        error_class=job.error_class,
        error_code=job.error_code,
        error_source=None,
        retry_count=job.retry_count,
        pod=None,
        code_version=None,
    )
    return [*known, last]


def next_problem(rows: Sequence[WaterfallRow], at: int | None, *, step: int) -> int | None:
    """Return the index of the next row with a problem, wrapping around; None if there is none."""
    count = len(rows)
    start = 0 if at is None else at
    places = ((start + step * n) % count for n in range(1, count + 1))
    return next((place for place in places if rows[place].is_problem), None)


def _stepped(
    steps: Sequence[WatchedStep],
    asked: Mapping[str, WatchedApproval],
    effects: Mapping[str, WatchedEffect],
) -> Iterator[WaterfallRow]:
    """Yield the steps, each with its first attempt, if known."""
    before: WatchedStep | None = None
    for step in steps:
        known = 1 if step.seq == 1 else step.attempt
        since = known if before is None else before.attempt
        yield attrs.evolve(_step(step, asked, effects), since=since)
        before = step


def _step(
    step: WatchedStep, asked: Mapping[str, WatchedApproval], effects: Mapping[str, WatchedEffect]
) -> WaterfallRow:
    usage = Usage.known_part(step.usage) if step.usage else None
    kind = step.kind
    effect = effects.get(step.key)
    row = WaterfallRow(
        key=("step", step.seq),
        number=step.seq,
        name=step.key,
        kind=kind,
        style=step_style(kind),
        began=step.started_at,
        ended=step.finished_at,
        tokens=None if usage is None else (usage.prompt_tokens, usage.output_tokens),
        cost=step.cost_usd,
        step_key=step.key,
        attempt=step.attempt,
    )
    if step.is_error:
        return attrs.evolve(row, note="error", is_problem=True)
    if effect is not None and effect.status in NOT_DONE:
        return attrs.evolve(row, note=effect.status.lower(), is_problem=True)
    decided = asked.get(step.key)
    if kind == StepKind.APPROVAL and decided is not None and decided.decided_at is not None:
        return _decision(row, decided)
    return row


def _decision(row: WaterfallRow, decided: WatchedApproval) -> WaterfallRow:
    status = decided.status
    by = f" by {decided.decided_by}" if decided.decided_by else ""
    return attrs.evolve(
        row,
        began=decided.created_at,
        ended=decided.decided_at,
        note=DECISIONS.get(status, status.lower()) + by,
        is_wait=True,
        is_problem=status is not ApprovalStatus.APPROVED,
    )


def _nested(rows: Sequence[WaterfallRow], folded: frozenset[int]) -> list[WaterfallRow]:
    """Indent calls below the answer before them, or hide them."""
    found: list[WaterfallRow] = []
    parent: int | None = None
    for row in rows:
        if row.kind == StepKind.MODEL:
            parent = len(found)
            found.append(row)
        elif parent is not None and row.kind in (StepKind.TOOL, StepKind.APPROVAL):
            above = found[parent]
            if above.number in folded:
                found[parent] = _with_folded(above, row)
            else:
                found[parent] = attrs.evolve(above, hidden=0)
                found.append(attrs.evolve(row, depth=1))
        else:
            parent = None
            found.append(row)
    return found


def _with_folded(above: WaterfallRow, row: WaterfallRow) -> WaterfallRow:
    ends = [each.ended for each in (above, row) if each.ended is not None]
    return attrs.evolve(
        above,
        hidden=(above.hidden or 0) + 1,
        is_problem=above.is_problem or row.is_problem,
        note=row.note if row.is_problem else above.note,
        ended=max(ends),
    )


def _ending(ended: EndedAttempt) -> WaterfallRow:
    outcome = ended.outcome
    is_calm = outcome in CALM_ENDINGS
    sign = Cell("↻", "retry") if outcome == "handed_back" else ended_sign(ended)
    return WaterfallRow(
        key=(outcome if outcome == "failed" else "attempt", ended.attempt),
        name=f"attempt {ended.attempt} ended",
        kind="attempt",
        style=sign.style,
        sign=sign.text,
        began=ended.ended_at,
        ended=ended.ended_at,
        note=ENDINGS.get(outcome) or str(outcome),
        is_mark=True,
        is_problem=not is_calm,
        attempt=ended.attempt,
    )


def _insert(rows: list[WaterfallRow], row: WaterfallRow) -> None:
    """Insert an ending after everything that ended before it, but not between answer and calls."""
    at = len(rows)
    while at and (rows[at - 1].ended or row.began) > row.began:
        at -= 1
    rows.insert(at, row)


def _going_on(
    job: WatchedJob,
    steps: Sequence[WatchedStep],
    asked: Mapping[str, WatchedApproval],
    effects: Mapping[str, WatchedEffect],
    saying: str,
) -> Iterator[WaterfallRow]:
    """Yield unfinished work after the last step: calls, waits for people, the running step."""
    done = {step.key for step in steps}
    since_attempt = steps[-1].attempt if steps else 1
    is_over = job.finished_at is not None
    runs = job.heartbeat_at is not None and not is_over
    is_named = False
    for key, effect in effects.items():
        if is_over or effect.finished_at is not None or key in done:
            continue
        is_unknown = effect.status == EffectStatus.UNKNOWN
        is_named = is_named or not is_unknown
        yield WaterfallRow(
            key=("effect", key),
            name=key,
            kind="effect",
            style="warn" if is_unknown else "accent",
            began=effect.created_at,
            ended=None,
            note="unknown" if is_unknown else "",
            is_wait=is_unknown,
            is_problem=is_unknown,
            step_key=key,
            attempt=effect.attempt,
            since=since_attempt,
        )
    for key, each in asked.items():
        if each.status == ApprovalStatus.PENDING:
            yield WaterfallRow(
                key=("approval", key),
                name=key,
                kind="approval",
                style="appr",
                began=each.created_at,
                ended=None,
                note="waits for people",
                is_wait=True,
                step_key=key,
                attempt=job.attempt,
                since=since_attempt,
            )
    if runs and not is_named:
        since = [job.started_at, job.running_since]
        since += [each.ended_at for each in job.attempts]
        since += [steps[-1].finished_at] if steps else []
        yield WaterfallRow(
            key=RUNNING_KEY,
            name=saying if saying not in done else "",
            kind="running",
            style="run",
            began=max(each for each in since if each is not None),
            ended=None,
            step_key=saying if saying not in done else "",
            attempt=job.attempt,
            since=since_attempt,
        )
