"""The details of the row under the cursor: its step, the log, the prompt, and raw JSON."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from cortex.domain.canonical import canonical, is_deep
from cortex.domain.effect import EffectStatus
from cortex.domain.file import shown
from cortex.domain.job import JobStatus, StepKind
from cortex.domain.safe import safe
from cortex.store.job_screen import TEXT_CHARS_MAX, StepDetail, WatchedJob
from cortex.view.arguments import argument_rows
from cortex.view.cells import Cell
from cortex.view.inline_files import without_content
from cortex.view.jobs import state_shown
from cortex.view.phrases import day_time, money
from cortex.view.steps import step_label
from cortex_tui.model.open_job import View
from cortex_tui.model.waterfall import WaterfallRow, endings
from cortex_tui.render.approval_page import wrapped
from cortex_tui.render.attempt_lines import attempt_lines
from cortex_tui.render.labelled import LINES_MAX, Line, labelled, text_lines, titled
from cortex_tui.render.words import countdown, span, tokens

NOT_YET: Final = "nothing happened yet"
EMPTY: Final = (None, "null", "{}", "[]", '""')


EFFECTS: Final = {
    "PENDING": ("pending", "warn"),
    "UNKNOWN": ("unknown: you decide what happened", "alarm"),
    "COMPLETED": ("applied", "done"),
    "FAILED": ("certainly not applied", "fail"),
    "ABANDONED": ("given up", "fail"),
}


def head(row: WaterfallRow | None, view: View) -> tuple[Cell, Cell]:
    """Return the left and right end of the heading."""
    named = Cell("" if row is None else safe(_named(row)), "bold")
    return named, Cell(f"◂ {view} ▸", "accent")


def page(
    row: WaterfallRow | None,
    detail: StepDetail | None,
    job: WatchedJob,
    view: View,
    *,
    now: datetime,
    width: int,
) -> list[Line]:
    """Return the lines of a view; `detail` is None while it loads."""
    if detail is None:
        return [(Cell("reading …", "dim"),)]
    match view:
        case View.LOG:
            content = _log(job, detail, width)
        case View.PROMPT:
            content = _prompt(row, detail, width)
        case _ if row is None:
            is_over = job.finished_at is not None
            content = iter([(Cell("nothing was done" if is_over else NOT_YET, "dim"),)])
        case View.STEP:
            content = _step(row, detail, job, now, width)
        case View.RESPONSE:
            content = _response(detail, width)
        case View.ATTEMPTS:
            content = attempt_lines(row, detail, job, now, width)
        case _:
            content = _raw(row, detail, width)
    lines = [line for line, _ in zip(content, range(LINES_MAX), strict=False)]
    return lines or [(Cell("nothing is recorded", "dim"),)]


def _named(row: WaterfallRow) -> str:
    name = step_label(row.name)
    return name or "running" if row.number is None else f"step {row.number} · {name}"


def _step(
    row: WaterfallRow, detail: StepDetail, job: WatchedJob, now: datetime, width: int
) -> Iterator[Line]:
    yield from labelled("kind", f"{row.kind} · attempt {row.attempt}", width)
    took_s = ((row.ended or now) - row.began).total_seconds()
    until = f" → {day_time(row.ended)}" if row.ended else " → now"
    if row.is_mark:
        yield from labelled("at", day_time(row.began), width)
    else:
        yield from labelled("took", f"{span(took_s)} · {day_time(row.began)}{until}", width)
    used = [] if row.tokens is None else [f"{tokens(*row.tokens)} tokens"]
    used += [] if row.cost is None else [money(row.cost)]
    yield from labelled("used", " · ".join(used), width)
    yield from _arguments(row, detail, width)
    yield from _effect(detail, now, width)
    yield from _errors(row, detail, job, width)
    if detail.output is not None:
        yield from titled("output")
        yield from _response(detail, width)
        yield from _cut(detail, width)


def _arguments(row: WaterfallRow, detail: StepDetail, width: int) -> Iterator[Line]:
    arguments = _decoded(detail.arguments)
    if arguments is None:
        arguments = _asked_for(row, _decoded(detail.asked_by))
    if arguments:
        yield from titled("arguments")
        yield from _rows(arguments, width)


def _asked_for(row: WaterfallRow, answer: Any) -> Any:
    """Return a call's input as the model wrote it, if exactly one call has that name."""
    if not isinstance(answer, dict) or row.kind != StepKind.TOOL:
        return None
    name = row.name.partition(" ")[2].partition("#")[0]
    blocks = [each for each in answer.get("content", ()) if isinstance(each, dict)]
    uses = [each for each in blocks if each.get("type") == "tool_use" and each.get("name") == name]
    number = row.name.partition("#")[2]
    place = int(number) - 1 if number.isdigit() else 0
    return uses[place].get("input") if 0 <= place < len(uses) else None


def _effect(detail: StepDetail, now: datetime, width: int) -> Iterator[Line]:
    if detail.effect_id is None or detail.effect_status is None:
        return
    words, style = EFFECTS[detail.effect_status]
    if detail.effect_status is EffectStatus.PENDING and detail.effect_at is not None:
        words += f" for {countdown((now - detail.effect_at).total_seconds())}"
    yield from labelled("effect", words, width, style)
    calls = detail.calls_count
    yield from labelled("called", "once" if calls == 1 else f"{calls} times", width)
    yield from labelled("key", str(detail.effect_id), width)
    can = "yes: the other side can be asked" if detail.can_reconcile else "no"
    yield from labelled("reconcile", can, width)
    yield from labelled("why", detail.why or "", width, "warn")
    if detail.resolved_by:
        resolution = f"{detail.resolution} by {detail.resolved_by}"
        yield from labelled("resolved", resolution, width)


def _errors(row: WaterfallRow, detail: StepDetail, job: WatchedJob, width: int) -> Iterator[Line]:
    output = _decoded(detail.output)
    if isinstance(output, dict) and "tool_error" in output:
        yield from labelled("error", str(output["tool_error"]), width, "fail")
    for ended in endings(job):
        is_about = row.kind == "attempt" and ended.attempt == row.attempt
        is_before = row.kind in ("running", "effect") and ended.attempt == row.attempt - 1
        if (is_about or is_before) and ended.error:
            code = ended.error_code or ended.error_class
            error = f"attempt {ended.attempt}: {ended.error}" + (f" ({code})" if code else "")
            yield from labelled("error", error, width, "fail")


def _log(job: WatchedJob, detail: StepDetail, width: int) -> Iterator[Line]:
    """Yield the job's history in order: states, ended attempts, effects, decisions."""
    events: list[tuple[datetime, str, str]] = []
    for moved in detail.history:
        status = moved.new
        state = state_shown(status, moved.waiting_on)
        where = f" · attempt {moved.attempt}" if moved.attempt else ""
        where += f" on {moved.pod}" if moved.pod else ""
        if status is JobStatus.CANCELLED and job.cancelled_by:
            why = f": {job.cancel_reason}" if job.cancel_reason else ""
            where += f" · by {job.cancelled_by}{why}"
        events.append((moved.at, f"{state!s}{where}", state.style))
    for ended in endings(job):
        why = f": {ended.error}" if ended.error else ""
        text = f"attempt {ended.attempt} {ended.outcome.replace('_', ' ')}{why}"
        events.append((ended.ended_at, text, "dim" if ended.outcome == "suspended" else "fail"))
    for effect in job.effects:
        words, style = EFFECTS[effect.status]
        events.append((effect.created_at, f"effect {effect.key}: {words}", style))
    for approval in job.approvals:
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        text = f"approval {approval.tool or approval.key}: {approval.status.lower()}{by}"
        events.append((approval.decided_at or approval.created_at, text, "appr"))
    for at, text, style in sorted(events, key=lambda each: each[0]):
        yield from labelled(day_time(at), text, width, style)
    yield from labelled("trace", detail.trace_id, width, "dim")


def _prompt(row: WaterfallRow | None, detail: StepDetail, width: int) -> Iterator[Line]:
    """Yield the job's first prompt; later turns are the steps before this one."""
    payload = detail.payload
    yield (Cell("what the job was given", "dim"),)
    if payload in EMPTY:
        yield (Cell("nothing", "dim"),)
    else:
        yield from _value(without_content(payload), width)
    if row is not None and row.number is not None and row.number > 1:
        yield (Cell(""),)
        rest = f"then steps 1 to {row.number - 1}, as they stand at the left"
        yield from ((Cell(line, "dim"),) for line in wrapped(rest, width))


def _response(detail: StepDetail, width: int) -> Iterator[Line]:
    output = _decoded(detail.output)
    blocks = output.get("content") if isinstance(output, dict) else None
    if not isinstance(blocks, list):
        if detail.output is not None:
            yield from _value(detail.output, width)
        return
    for block in blocks:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield from text_lines(block["text"], width)
        elif isinstance(block, dict) and block.get("type") == "tool_use":
            yield (Cell(safe(f"calls {block.get('name')}"), "accent"),)
            yield from _rows(block.get("input"), width)
    if stop := output.get("stop_reason"):
        yield from labelled("stopped", str(stop), width, "dim")


def _raw(row: WaterfallRow, detail: StepDetail, width: int) -> Iterator[Line]:
    document = {
        "key": row.step_key or row.name,
        "seq": row.number,
        "attempt": row.attempt,
        "digest": detail.digest,
        "effect": None if detail.effect_id is None else str(detail.effect_id),
        "arguments": _decoded(detail.arguments) or detail.arguments,
        "output": _decoded(detail.output) or detail.output,
        "input": _decoded(detail.input) or detail.input,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    yield from text_lines(text, width)
    yield from _cut(detail, width)


def _cut(detail: StepDetail, width: int) -> Iterator[Line]:
    size = detail.output_bytes or 0
    if len(detail.output or "") >= TEXT_CHARS_MAX:
        note = f"… of {size:,} bytes; cortex jobs show --json has them all"
        yield from ((Cell(line, "warn"),) for line in wrapped(note, width))


def _decoded(text: str | None) -> Any:
    """Parse JSON; None for text that was truncated or is invalid."""
    if text is None or is_deep(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _value(text: str, width: int) -> Iterator[Line]:
    value = shown(_decoded(text))
    if value is None and text != "null":
        yield from text_lines(text, width)
    elif isinstance(value, str):
        yield from text_lines(value, width)
    elif isinstance(value, dict | list):
        yield from _rows(value, width)
    else:
        yield (Cell(safe(text)),)


def _rows(value: Any, width: int) -> Iterator[Line]:
    for row in argument_rows(value):
        text = row.value if row.is_text else canonical_text(row.value)
        yield from labelled(row.field or "=", text, width, "")


def canonical_text(value: object) -> str:
    """Return canonical JSON text; a value that already is JSON text stays as it is."""
    return value if isinstance(value, str) else canonical(value)
