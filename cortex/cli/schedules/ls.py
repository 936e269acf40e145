"""`cortex schedules ls` and `cortex schedules show`."""

from collections.abc import Iterator
from typing import Any, Final

import click
import orjson

from cortex.cli.completing import known
from cortex.cli.listing import list_by_name
from cortex.cli.options import Command, Options, limit_option
from cortex.cli.screen.output import Output, document_of
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.store.background import schedules as store
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.view.cells import pad
from cortex.view.phrases import NOTHING, age, at_instant, localised, since_s
from cortex.view.resources.schedules import SCHEDULES
from cortex.view.schedules import (
    OVERLAPS,
    instant_cell,
    instant_words,
    next_text,
    runs,
    state_of,
)

INSTANTS_SHOWN: Final = 20
STATE_CELLS: Final = 24


ls: Final = list_by_name(
    SCHEDULES, help="List schedules by name: what each runs, its next and its last instant."
)


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=known("schedule"))
@limit_option(INSTANTS_SHOWN, "Maximum number of instants.")
@click.pass_obj
def show(options: Options, *, name: str, limit: int) -> None:
    """Show one schedule, and what became of its last instants."""
    output = Output(options)
    with session(options) as call:
        row = call(store.show, name)
        instants = call(store.instants, name, limit=limit)
    document = {
        "schedule": SCHEDULES.document(row),
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
