"""`cortex schedules preview`: what will fire, or would in a backfill, and what it may cost."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

import click

from cortex.cli.completing import known
from cortex.cli.options import Command, Options, Span, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.domain.schedules.cron import local_time
from cortex.domain.schedules.schedule import Schedule
from cortex.store.background import schedules as store
from cortex.store.background.schedules import PastRuns
from cortex.view.phrases import at_instant, money

COUNTED_MAX: Final = 10_000
"""Instants counted; a year of minutes would take seconds."""


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=known("schedule"))
@click.option(
    "--for",
    "for_s",
    type=Span(),
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How far to look ahead, such as 12h or 7d.",
)
@click.option(
    "--backfill",
    "back_s",
    type=Span(),
    metavar="TIME",
    help="Look back instead: what a backfill of this period would fire.",
)
@limit_option(20, "Maximum number of instants to list; all are counted.")
@click.pass_obj
def preview(options: Options, *, name: str, for_s: float, back_s: float | None, limit: int) -> None:
    """Show when a schedule will fire, and what that costs if past runs are a guide."""
    output = Output(options)
    with session(options) as call:
        row = call(store.show, name)
        past = call(store.past_runs, name)
    schedule = row.schedule
    length = timedelta(seconds=for_s if back_s is None else back_s)
    start, end = (row.now, row.now + length) if back_s is None else (row.now - length, row.now)
    counted = list(
        islice(takewhile(lambda at: at <= end, schedule.cron.after(start)), COUNTED_MAX + 1)
    )
    runs = min(len(counted), COUNTED_MAX)
    document = {
        "schedule": name,
        "from": start,
        "until": end,
        "runs": runs,
        "is_more": len(counted) > COUNTED_MAX,
        "past_runs": past.runs,
        "mean_s": past.mean_s,
        "mean_usd": past.mean_usd,
        "usd": None if past.mean_usd is None else round(past.mean_usd * runs, 4),
        "seconds": None if past.mean_s is None else round(past.mean_s * runs, 3),
        "instants": [_document(schedule, at) for at in counted[:limit]],
    }
    output.record(
        document,
        name=name,
        page=lambda: _page(schedule, counted[:limit], document, past, output.terminal),
    )


def _document(schedule: Schedule, instant: datetime) -> dict[str, Any]:
    return {
        "instant": instant,
        "local": local_time(instant, schedule.cron.zone).isoformat(),
        "due_at": schedule.due_at(instant),
    }


def _page(
    schedule: Schedule,
    listed: list[datetime],
    document: dict[str, Any],
    past: PastRuns,
    terminal: Terminal,
) -> Iterator[str]:
    zone = schedule.cron.zone
    for at in listed:
        local = f"{local_time(at, zone):%a %Y-%m-%d %H:%M %Z}"
        delay_s = (schedule.due_at(at) - at).total_seconds()
        late = f"  + {span(delay_s)}" if delay_s else ""
        yield f"  {at_instant(at, is_tty=terminal.is_tty)}  {safe(local)}{late}"
    more = "more than " if document["is_more"] else ""
    yield terminal.paint(f"{more}{document['runs']:,} runs", "bold") + _estimate(document, past)


def _estimate(document: dict[str, Any], past: PastRuns) -> str:
    if not past.runs or past.mean_s is None:
        return "; no past run to estimate their cost by"
    cost = "" if not past.mean_usd else f", {money(document['usd'])}"
    return (
        f"; about {span(document['seconds'])}{cost}, by the last {past.runs} "
        f"({past.completed} completed)"
    )
