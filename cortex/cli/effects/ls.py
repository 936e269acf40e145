"""`cortex effects ls`: external effects of jobs, the newest first."""

import difflib
from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.effect import EffectStatus
from cortex.domain.errors import UsageError
from cortex.domain.phrases import age, exact, short_id, since_s
from cortex.domain.safe import safe
from cortex.store import effects, jobs
from cortex.store.effects import EffectRow
from cortex.view.cells import Cell
from cortex.view.effects import WORDS, remark, state_cell
from cortex.view.resource import Field, on_demand
from cortex.view.steps import step_label

LIMIT_MAX: Final = 1000


@click.command(cls=Command)
@click.option(
    "--status",
    multiple=True,
    metavar="STATE",
    help="pending, unknown, applied, not-applied or given-up; commas separate several.",
)
@click.option("--tool", metavar="NAME", help="Only effects of this tool.")
@click.option("--job", metavar="ID", help="Only effects of this job.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, metavar="N"
)
@click.option("--before", metavar="ID", help="Only effects older than this one: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    status: tuple[str, ...],
    tool: str | None,
    job: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List effects, the newest first. Unknown ones need a person to record their outcome."""
    statuses = _parsed(status)
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(
            effects.page,
            statuses=statuses or tuple(EffectStatus),
            tool=tool,
            job_id=call(jobs.find, job) if job else None,
            before=call(effects.find, before) if before else None,
            limit=limit,
        )
    is_filtered = any((statuses, tool, job, before))
    empty = "no effect matches" if is_filtered else "no job has changed anything outside yet"
    output.listing("effects", COLUMNS, rows, empty=empty)
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"older ones: --before {short_id(rows[-1].id)}", "dim")


def _parsed(words: tuple[str, ...]) -> list[EffectStatus]:
    found = []
    for word in (part.strip().lower() for text in words for part in text.split(",")):
        if word not in WORDS:
            close = difflib.get_close_matches(word, WORDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"states: {', '.join(WORDS)}"
            raise UsageError(f"unknown state {word!r}", hint=hint)
        found.append(WORDS[word])
    return found


def _arguments(row: EffectRow) -> Cell:
    return Cell(exact(row.arguments))


COLUMNS: Final[Sequence[Field[EffectRow]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="tool", shown=lambda r: Cell(safe(r.tool)), least=10),
    Field(name="status", title="state", shown=state_cell),
    Field(name="job_id", title="job", shown=lambda r: Cell(short_id(r.job_id))),
    Field(
        name="key",
        title="step",
        shown=lambda r: Cell(safe(step_label(r.key))),
        least=8,
        is_spare=True,
    ),
    Field(
        name="created_at",
        title="age",
        shown=lambda r: Cell(age(since_s(r, r.created_at))),
        is_right=True,
    ),
    Field(
        name="remark",
        title="why / next",
        value=remark,
        shown=lambda r: Cell(safe(remark(r)), "dim"),
        least=16,
        is_for_people=True,
    ),
    Field(name="arguments", shown=_arguments, least=12, is_spare=True),
    *on_demand("agent", "why", "calls_count", "can_reconcile", "finished_at"),
    *on_demand("resolution", "resolved_by", "approval_id"),
)
