"""`cortex why`: why a job is not running, when that is expected to change, and what would help."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from cortex.cli.completing import known
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.domain.why_facts import WhyFacts
from cortex.store import jobs, steps
from cortex.store import why as store
from cortex.store.jobs import SubstitutionRow
from cortex.view import why as rules
from cortex.view.phrases import localised
from cortex.view.steps import substitution_text
from cortex.view.why import Cause, Why

STEPS_MAX: Final = 200
"""The newest steps, among which answers of other models are looked for."""


@click.command(cls=Command)
@click.argument("job", metavar="JOB", shell_complete=known("job"))
@click.pass_obj
def why(options: Options, *, job: str) -> None:
    """Explain why a job is not running, when it will, and what would help."""
    output = Output(options)
    options.refuse_columns("why shows a sentence, it has no columns")
    with session(options) as call:
        facts = call(store.facts_of, call(jobs.find, job))
        others = call(steps.substitutions, facts.job_id, after=_newest(facts))
    text = rules.why(facts)
    output.record(
        _document(text, facts, others),
        name=text.cause.value,
        page=lambda: _page(text, facts, others, output.terminal),
    )


def _newest(facts: WhyFacts) -> int:
    """Return the step after which other models' answers are looked for."""
    last = (facts.step or "").partition(" ")[0]
    return max(0, int(last) - STEPS_MAX) if last.isdecimal() else 0


def _document(text: Why, facts: WhyFacts, others: Sequence[SubstitutionRow]) -> dict[str, Any]:
    return {
        "job": facts.job_id,
        "cause": text.cause,
        "sentence": text.sentence,
        "expected_at": text.expected_at,
        "since": text.since,
        "ways_out": text.ways_out,
        "facts": facts,
        "substitutions": others,
    }


def _page(
    text: Why, facts: WhyFacts, others: Sequence[SubstitutionRow], terminal: Terminal
) -> Iterator[str]:
    name = terminal.paint(f"job {short_id(facts.job_id)}", "bold")
    sentence = localised(text.sentence) if terminal.is_tty else text.sentence
    yield f"{name} ({safe(facts.type)}): {safe(sentence)}{_times(text, facts, terminal)}"
    for each in others:
        yield f"  answered by another model: {safe(substitution_text(each))}"
    for command in text.ways_out:
        yield terminal.paint(f"  {safe(command)}", "dim")


def _times(text: Why, facts: WhyFacts, terminal: Terminal) -> str:
    parts = []
    if text.since is not None:
        parts.append(f"for {span((facts.now - text.since).total_seconds())}")
    if text.expected_at is not None:
        left_s = (text.expected_at - facts.now).total_seconds()
        at = terminal.clock(text.expected_at)
        word = "expires" if text.cause is Cause.APPROVAL else "expected"
        parts.append(f"{word} in {span(left_s)} (at {at})" if left_s > 0 else f"{word} now")
    return "".join(f" · {part}" for part in parts)
