"""`cortex quotas ls`: limits, usage, and waiting jobs."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.limits import NEARLY, page_options, show_page
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column, only_on_demand
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, age, day_time, since_s, span
from cortex.domain.quota import Quota
from cortex.domain.safe import safe
from cortex.store import quotas as store
from cortex.store.quotas import QuotaRow
from cortex.view.cells import Cell


@click.command(cls=Command)
@page_options
@click.pass_obj
def ls(options: Options, *, limit: int, after: str) -> None:
    """List quotas: limit, usage, time of the next reset, and waiting jobs."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(store.page, after=after, limit=limit)
    empty = "no quota is set: cortex quotas set TOOL --limit 20 --per hour --reason TEXT"
    show_page(output, "quotas", COLUMNS, rows, limit=limit, after=after, empty=empty)


def _limit(row: QuotaRow) -> Cell:
    quota = row.quota
    return Cell(safe(quota.worded(quota.limit)))


def _used(row: QuotaRow) -> Cell:
    used, limit = row.used, row.limit_amount
    if used >= limit:
        return Cell(Quota.plain(used), "fail")
    return Cell(Quota.plain(used), "warn" if used >= NEARLY * limit else "" if used else "dim")


def _resets(row: QuotaRow) -> Cell:
    left_s = -since_s(row, row.resets_at)
    return Cell(f"in {span(left_s)} ({day_time(row.resets_at)})")


def _waiting(row: QuotaRow) -> Cell:
    jobs = row.waiting_jobs
    return Cell(str(jobs), "warn") if jobs else Cell(NOTHING, "dim")


def _changed(row: QuotaRow) -> Cell:
    text = f"{age(since_s(row, row.changed_at))} by {row.changed_by}: {row.reason}"
    return Cell(safe(text), "dim")


# The name is never shortened: people type it.
COLUMNS: Final[Sequence[Column[QuotaRow]]] = (
    Column(name="name", title="quota", shown=lambda r: Cell(safe(r.name), "bold")),
    Column(name="limit", value=lambda r: r.limit_amount, shown=_limit, is_right=True),
    Column(name="used", shown=_used, is_right=True),
    Column(name="waiting_jobs", title="jobs wait", shown=_waiting, is_right=True),
    Column(name="resets_at", title="resets", shown=_resets, is_spare=True),
    Column(name="changed_at", title="set", shown=_changed, least=12, is_spare=True),
    *only_on_demand("tool", "argument", "unit", "period", "changed_by", "reason", "created_at"),
)
