"""`cortex budgets ls`."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

import click

from cortex.cli.limits import NEARLY, page_options, show_page
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column, only_on_demand
from cortex.cli.target import session
from cortex.domain.budget import Period, worded
from cortex.domain.phrases import NOTHING, age, short_id, since_s
from cortex.domain.safe import safe
from cortex.store import budgets
from cortex.store.budgets import BudgetRow
from cortex.view.cells import Cell


@click.command(cls=Command)
@page_options
@click.pass_obj
def ls(options: Options, *, limit: int, after: str) -> None:
    """List budgets: limit, amounts spent and reserved, and waiting jobs.

    For a budget per run, shows the run that spent most; for one per day, the current UTC day.
    """
    output = Output(options)
    with session(options) as call:
        rows = call(budgets.page, after=after, limit=limit)
    empty = "no budget is set: cortex budgets set --agent NAME --usd 5 --per day --reason TEXT"
    show_page(output, "budgets", COLUMNS, rows, limit=limit, after=after, empty=empty)


def _left(row: BudgetRow) -> Decimal:
    return max(row.limit_amount - row.spent - row.reserved, Decimal(0))


def _amount(row: BudgetRow, amount: Decimal, style: str = "") -> Cell:
    return Cell(worded(amount, row.unit), style if amount else "dim")


def _spent(row: BudgetRow) -> Cell:
    spent, limit = row.spent, row.limit_amount
    if spent >= limit:
        return Cell(worded(spent, row.unit), "fail")
    return _amount(row, spent, "warn" if spent >= NEARLY * limit else "")


def _window(row: BudgetRow) -> Cell:
    if row.period is Period.DAY:
        return Cell("today")
    if row.window_key is None:
        return Cell("each run", "dim")
    return Cell(f"run {short_id(UUID(row.window_key))}")


def _waiting(row: BudgetRow) -> Cell:
    jobs = row.waiting_jobs
    return Cell(str(jobs), "warn") if jobs else Cell(NOTHING, "dim")


def _changed(row: BudgetRow) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.changed_at))} by {row.changed_by}"), "dim")


# The name is never shortened: people type it.
COLUMNS: Final[Sequence[Column[BudgetRow]]] = (
    Column(name="name", title="budget", shown=lambda r: Cell(safe(r.name), "bold")),
    Column(
        name="limit",
        value=lambda r: r.limit_amount,
        shown=lambda r: _amount(r, r.limit_amount),
        is_right=True,
    ),
    Column(name="spent", shown=_spent, is_right=True),
    Column(
        name="left",
        value=_left,
        shown=lambda r: _amount(r, _left(r)),
        is_right=True,
        is_spare=True,
    ),
    Column(name="waiting_jobs", title="waiting", shown=_waiting, is_right=True, is_spare=True),
    Column(name="reserved", shown=lambda r: _amount(r, r.reserved), is_right=True, is_spare=True),
    Column(name="window_key", title="of", shown=_window, is_spare=True),
    Column(name="changed_at", title="changed", shown=_changed, is_spare=True),
    *only_on_demand("scope", "subject", "unit", "period", "changed_by", "reason", "created_at"),
)
