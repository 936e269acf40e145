"""`cortex dead show`: why a job failed, and the effect of a retry."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from cortex.cli.completing import known
from cortex.cli.jobs.job_page import block
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.dead_letter import DeadLetterDetail
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.store import dead_letters, jobs
from cortex.store.jobs import EndedAttempt
from cortex.view.cells import pad
from cortex.view.dead_letters import error_text, on_retry, state_cell, when
from cortex.view.jobs import OUTCOMES, retry_text
from cortex.view.phrases import at_instant, exact, money
from cortex.view.resources.dead_letters import LETTER
from cortex.view.steps import last_step

LABEL_CELLS: Final = 11
CHANGES_SHOWN: Final = 5
RAW_CHARS_MAX: Final = 2000
"""Shown of the raw text of a model or a tool."""


@click.command(cls=Command)
@click.argument("name", metavar="ID", shell_complete=known("dead letter"))
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show why a job failed: cause, last good step, cost, and the effect of a retry."""
    options.refuse_columns("one dead letter has no columns")
    output = Output(options)
    with session(options) as call:
        job_id = call(jobs.find, name)
        letter = call(dead_letters.show, job_id)
        attempts = call(jobs.attempts, job_id)
    output.record(
        {"letter": LETTER.document(letter), "attempts": attempts},
        name=str(job_id),
        page=lambda: _page(letter, attempts, output.terminal),
    )


def _page(
    letter: DeadLetterDetail, attempts: Sequence[EndedAttempt], terminal: Terminal
) -> Iterator[str]:
    agent = f" · {letter.agent} v{letter.agent_version}" if letter.agent else ""
    state = state_cell(letter.state)
    head = safe(f"dead letter {short_id(letter.job_id)}  {letter.type}{agent}")
    yield f"{terminal.paint(head, 'bold')}  {terminal.paint(state.text, state.style)}"
    for label, text in _facts(letter, terminal).items():
        if text:
            style = {"error": "fail", "on retry": "bold"}.get(label, "")
            shown = terminal.paint(safe(text), style)
            yield f"  {terminal.paint(pad(label, LABEL_CELLS), 'dim')}{shown}"
    if attempts:
        yield from ("", terminal.paint("  attempts that ended early", "dim"))
        yield from (_attempt(each, terminal) for each in attempts)
    if letter.raw is not None:
        yield from ("", terminal.paint("  raw response", "dim"))
        yield from _raw(letter.raw)
    if letter.stack:
        yield from ("", terminal.paint("  stack", "dim"))
        yield from block(letter.stack, indent="    ")


def _raw(text: str) -> Iterator[str]:
    yield from block(text[:RAW_CHARS_MAX] or "nothing", indent="    ")
    if len(text) > RAW_CHARS_MAX:
        yield f"    … {len(text) - RAW_CHARS_MAX:,} more characters: --json has them all"


def _facts(letter: DeadLetterDetail, terminal: Terminal) -> dict[str, str]:
    return {
        "id": str(letter.job_id),
        "error": letter.error_message,
        "cause": error_text(letter),
        "alike": f"cortex dead ls --each --fingerprint {letter.fingerprint}",
        "failed": _failed(letter, terminal),
        "last step": _last_step(letter, terminal),
        "spent": money(letter.spent_usd) if letter.spent_usd is not None else "",
        "breaker": f"{letter.error_source} is {letter.breaker}" if letter.breaker else "",
        "origin": _origin(letter),
        "payload": exact(letter.payload),
        "trace": letter.trace_id or "",
        "settled": _settled(letter, terminal),
        "on retry": on_retry(letter) if _is_unresolved(letter) else "",
    }


def _failed(letter: DeadLetterDetail, terminal: Terminal) -> str:
    parts = [
        f"{when(letter, letter.finished_at, is_tty=terminal.is_tty)} in attempt {letter.attempt}"
    ]
    if letter.pod:
        parts[0] += f" on {letter.pod}"
    if letter.started_at is not None:
        started = at_instant(letter.started_at, is_tty=terminal.is_tty)
        took_s = (letter.finished_at - letter.started_at).total_seconds()
        parts.append(f"{span(took_s)} after its start at {started}")
    parts.append(f"{letter.retry_count} of {letter.max_retries} retries used")
    return " · ".join(parts)


def _last_step(letter: DeadLetterDetail, terminal: Terminal) -> str:
    if letter.step is None:
        return "none was committed"
    return f"{last_step(letter.step)} · {when(letter, letter.step_at, is_tty=terminal.is_tty)}"


def _origin(letter: DeadLetterDetail) -> str:
    if letter.origin_id is None:
        return ""
    first = "" if letter.origin_id == letter.lineage_id else f", first {letter.lineage_id}"
    return f"continues {letter.origin_id}{first}"


def _settled(letter: DeadLetterDetail, terminal: Terminal) -> str:
    reason = letter.reason or ""
    if _is_unresolved(letter):
        return reason
    text = f"{on_retry(letter)} {when(letter, letter.resolved_at, is_tty=terminal.is_tty)}"
    text += f": {reason}" if reason.strip() else ""
    if letter.retried_as is None:
        return text
    if letter.payload_changes:
        text += f" · with another payload: {', '.join(_changed(letter.payload_changes))}"
    return f"{text} · {letter.retried_as} is {letter.retried_status}"


def _changed(recorded: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the first differences of the payload that a dead letter was retried with."""
    for each in recorded[:CHANGES_SHOWN]:
        old, new = (each[side] or "nothing" for side in ("old", "new"))
        yield f"{each['field']} from {old} to {new}"
    if len(recorded) > CHANGES_SHOWN:
        yield f"{len(recorded) - CHANGES_SHOWN} more: --json has them"


def _is_unresolved(letter: DeadLetterDetail) -> bool:
    return letter.state.is_unresolved


def _attempt(attempt: EndedAttempt, terminal: Terminal) -> str:
    why = OUTCOMES.get(attempt.outcome, attempt.outcome)
    parts = [why, attempt.error, retry_text(attempt)]
    line = " · ".join(each for each in parts if each)
    at = at_instant(attempt.ended_at, is_tty=terminal.is_tty)
    return safe(f"    {at}  attempt {attempt.attempt}: {line}")
