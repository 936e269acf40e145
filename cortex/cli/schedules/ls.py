"""`cortex schedules ls` and `cortex schedules show`."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
import orjson

from cortex.cli.limits import page_options, show_page
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output, document_of
from cortex.cli.screen.table import Column, only_on_demand
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, age, at_instant, localised, since_s, span
from cortex.domain.safe import safe
from cortex.store.background import schedules as store
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import Cell, pad
from cortex.view.schedules import (
    OVERLAPS,
    instant_cell,
    instant_words,
    last_text,
    next_text,
    runs,
    state_of,
)

INSTANTS_SHOWN: Final = 20
STATE_CELLS: Final = 24


@click.command(cls=Command)
@page_options
@click.pass_obj
def ls(options: Options, *, limit: int, after: str) -> None:
    """List schedules by name: what each runs, its next and its last instant."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(store.page, after=after, limit=limit)
    empty = "no schedule exists: cortex schedules apply FILE"
    show_page(output, "schedules", COLUMNS, rows, limit=limit, after=after, empty=empty)


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=INSTANTS_SHOWN,
    show_default=True,
    metavar="N",
    help="Maximum number of instants.",
)
@click.pass_obj
def show(options: Options, *, name: str, limit: int) -> None:
    """Show one schedule, and what became of its last instants."""
    output = Output(options)
    with session(options) as call:
        row = call(store.show, name)
        instants = call(store.instants, name, limit=limit)
    document = {
        "schedule": {column.name: column.exact(row) for column in COLUMNS},
        "instants": [document_of(each, _INSTANT_FIELDS) for each in instants],
    }
    output.record(document, name=name, page=lambda: _page(row, instants, output.terminal))


_INSTANT_FIELDS: Final = (
    "instant",
    "outcome",
    "job_id",
    "status",
    "is_manual",
    "is_made_up",
    "error",
    "reason",
    "at",
    "finished_at",
)


def _page(row: ScheduleRow, instants: list[InstantRow], terminal: Terminal) -> Iterator[str]:
    _, words, style = state_of(row)
    head = terminal.paint(f"schedule {safe(row.name)}", "bold")
    yield f"{head}  {terminal.paint(safe(words), style)}"
    changed = f"{age(since_s(row, row.changed_at))} ago by {row.changed_by}"
    pairs: dict[str, Any] = {
        "cron": f"{row.cron}  {row.zone}",
        "runs": runs(row),
        "arguments": orjson.dumps(row.arguments).decode() if row.arguments else None,
        "instant as": row.instant_as,
        "tenant": row.tenant,
        "next": next_text(row),
        "overlap": f"{row.overlap}: {OVERLAPS[row.overlap]}",
        "backfill": span(row.backfill_s) if row.backfill_s else "none",
        "jitter": span(row.jitter_s) if row.jitter_s else None,
        "missed": f"{row.missed_count:,}" if row.missed_count else None,
        "declared": f"by {row.origin.replace('_', ' ')}, {changed}"
        + (f": {row.reason}" if row.reason else ""),
    }
    for key, value in pairs.items():
        if value is not None:
            yield f"  {terminal.paint(pad(key, 11), 'dim')}{safe(str(value))}"
    yield from ("", terminal.paint("  instants", "dim"))
    if not instants:
        yield f"  {NOTHING}"
    for each in instants:
        cell = instant_cell(each)
        at = at_instant(each.instant, is_tty=terminal.is_tty)
        words = instant_words(each) or ""
        what = [str(each.job_id or ""), safe(localised(words) if terminal.is_tty else words)]
        state = terminal.paint(pad(cell.text, STATE_CELLS), cell.style)
        yield f"  {at}  {state}  {'  '.join(filter(None, what))}".rstrip()


def _state(row: ScheduleRow) -> Cell:
    word, words, style = state_of(row)
    return Cell(safe(f"● {words}" if word == "ok" else words), style)


# The name is never shortened: people type it.
COLUMNS: Final[Sequence[Column[ScheduleRow]]] = (
    Column(name="name", title="schedule", shown=lambda r: Cell(safe(r.name), "bold")),
    Column(name="state", value=lambda r: state_of(r)[0], shown=_state, least=12),
    Column(name="cron", shown=lambda r: Cell(safe(r.cron)), least=9),
    Column(name="zone", shown=lambda r: Cell(safe(r.zone), "dim"), least=3, is_spare=True),
    Column(name="type", title="runs", shown=lambda r: Cell(safe(runs(r))), least=8),
    Column(name="next_at", title="next", shown=lambda r: Cell(next_text(r)), least=10),
    Column(name="last_instant", title="last", shown=lambda r: Cell(last_text(r)), least=8),
    *only_on_demand(
        "agent",
        "arguments",
        "tenant",
        "backfill_s",
        "overlap",
        "jitter_s",
        "instant_as",
        "origin",
        "due_at",
        "is_served",
        "is_declared",
        "has_missed",
        "problem",
        "queued",
        "missed_count",
        "missed_at",
        "last_outcome",
        "last_job_id",
        "last_status",
        "last_error",
        "paused_at",
        "paused_by",
        "pause_reason",
        "changed_by",
        "changed_at",
        "reason",
        "created_at",
    ),
)
